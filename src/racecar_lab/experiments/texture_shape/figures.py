"""Charts of texture-shape: accuracies on new shapes, by class, with a random split, and the paper's ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.datasets.texture_shape import CLASSES
from racecar_lab.experiments.paper_figures import having
from racecar_lab.experiments.texture_shape.claims import PAPER, STAGE
from racecar_lab.experiments.texture_shape.pictures import confidence_figure, rebuilt_figure
from racecar_lab.experiments.texture_shape.ratios import CHANCE, paper_ratios
from racecar_lab.experiments.texture_shape.rows import USUAL, mean_of, rows, settings, values
from racecar_lab.experiments.texture_shape.splitting import CLUSTERS
from racecar_lab.report.clustered import cluster_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

ROW, EDGE = 0.3, 0.7
"""Heights in inches: of a row, and of the title and axis of a panel."""
PANELS = {
    "test_accuracy": "stylised: accuracy in %",
    "silhouettes_accuracy": "silhouettes: accuracy in %",
    "edges_accuracy": "edges: accuracy in %",
    "shape_bias": "decisions by shape in %",
}
Rows = Mapping[str, Sequence["Run"]]


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure, for each setting: accuracies, comparisons with a random split and with the paper, and
    pictures."""
    figures = {}
    for where, members in settings(runs).items():
        nets, random = rows(members, STAGE), rows(members, STAGE, "random")
        if nets:
            title = "Shapes that no net has seen: folds, their mean and 95 % interval (◇: the paper)"
            figures[f"{title}{where}"] = accuracy_figure(nets)
        if both := [name for name in nets if name in random]:
            title = "Why a random split misleads: the same nets, tested on shapes that they know and on new ones"
            figures[f"{title}{where}"] = split_figure(nets, random, both)
        if usual := {name: nets[name] for name in USUAL if name in nets}:
            figures[f"Stylised pictures of new shapes, class by class{where}"] = class_figure(usual)
        if ratios := paper_ratios(members):
            figures[f"What the paper prints as ratios (◇), and ours{where}"] = ratio_figure(ratios)
        if tested := _with_array(nets, "confidences"):
            figures[f"What nets say of four pictures of new shapes{where}"] = confidence_figure(tested)
        if regularised := _with_array(rows(members, "A"), "rebuilt"):
            title = "Stylised pictures of new shapes and, below, what the reverse pass rebuilds, brightness fitted"
            figures[f"{title}{where}"] = rebuilt_figure(regularised)
    return figures


def _with_array(nets: Rows, array: str) -> dict[str, list[Run]]:
    """Name of a net → its living runs that have stored an array; only of the usual nets, ``USUAL``, and only if there
    are any."""
    living = {name: [run for run in having(nets[name], array) if not run.dead] for name in USUAL if name in nets}
    return {name: members for name, members in living.items() if members}


@styled
def accuracy_figure(nets: Rows) -> Figure:
    """Draw a panel for the accuracy on each set of pictures and one for the shape bias; a row for each kind of net."""
    height = EDGE + ROW * len(nets)
    figure, axes = new_figure(len(PANELS), 1, (WIDTH, len(PANELS) * height))
    descriptions = []
    for (axis,), (metric, title) in zip(axes, PANELS.items(), strict=True):
        means = [_row(axis, y, metric, name, members) for y, (name, members) in enumerate(nets.items())]
        axis.set_yticks(range(len(nets)), [_label(name, members) for name, members in nets.items()], fontsize=SMALL)
        axis.set(ylim=(len(nets) - 0.5, -0.5), xlabel=title)
        axis.grid(False, axis="y")
        if metric != "shape_bias":
            axis.axvline(CHANCE, color="#777777", linewidth=0.8, linestyle=":")
        descriptions.append(f"{title}: {', '.join(filter(None, means))}")
    figure.set_label("; ".join(descriptions))
    return figure


def _row(axis: Axes, y: int, metric: str, name: str, runs: Sequence[Run]) -> str:
    """Draw a metric of one kind of net in row ``y``: a dot for each fold, their mean and its 95 % interval. Return the
    mean in words; empty if there is none."""
    estimate, style = mean_of(runs, metric), look(name.split(",")[0])
    if estimate is None:
        return ""
    folds = cluster_means(values(runs, metric), CLUSTERS).values()
    axis.plot([100 * value for value in folds], [y] * len(folds), linestyle="none", markersize=4, alpha=0.4, **style)
    low, high = estimate.interval() or (estimate.mean, estimate.mean)
    axis.plot([100 * low, 100 * high], [y, y], color=style["color"], linewidth=1.6)
    axis.plot([100 * estimate.mean], [y], linestyle="none", markersize=8, **style)
    for number in PAPER:
        if (number.metric, number.variant) == (metric, name):
            axis.plot([100 * number.value], [y], marker="D", markersize=6, markerfacecolor="none", color="#333333")
    return f"{name} {100 * estimate.mean:.1f}"


def _label(name: str, runs: Sequence[Run]) -> str:
    """The label of a row: its name, and the number of dead nets if there are any."""
    dead = sum(run.dead for run in runs)
    short = name.replace(", ", ",\n")
    return f"{short} ({dead} of {len(runs)} dead)" if dead else short


@styled
def split_figure(nets: Rows, random: Rows, names: Sequence[str]) -> Figure:
    """Draw for each set of pictures how much better a random split looks: for each net a line from its accuracy on new
    shapes (split by shape picture) to that on known ones (random split)."""
    sets = {name: title for name, title in PANELS.items() if name != "shape_bias"}
    figure, axes = new_figure(len(sets), 1, (WIDTH, len(sets) * (EDGE + ROW * len(names)) + 0.3))
    descriptions = []
    for (axis,), (metric, title) in zip(axes, sets.items(), strict=True):
        for y, name in enumerate(names):
            by_shape, at_random = mean_of(nets[name], metric), mean_of(random[name], metric)
            if by_shape is None or at_random is None:
                continue
            new, known = 100 * by_shape.mean, 100 * at_random.mean
            colour = look(name.split(",")[0])["color"]
            axis.plot([new, known], [y, y], color=colour, linewidth=1.4)
            first = y == 0 and metric == "test_accuracy"
            axis.plot(new, y, "o", color=colour, label="new shapes (by shape picture)" if first else None)
            axis.plot(
                known, y, "o", color=colour, markerfacecolor="white", label="known shapes (random)" if first else None
            )
            descriptions.append(
                f"{name}, {title.split(':')[0]}: {new:.0f} % of new shapes, {known:.0f} % of known ones"
            )
        axis.axvline(CHANCE, color="#777777", linewidth=0.8, linestyle=":")
        axis.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=SMALL)
        axis.set(ylim=(len(names) - 0.5, -0.5), xlim=(0, 102), xlabel=title)
        axis.grid(False, axis="y")
    figure.legend(loc="outside upper center", ncols=1, fontsize=SMALL)
    figure.set_label("; ".join(descriptions))
    return figure


@styled
def class_figure(nets: Rows) -> Figure:
    """Draw bars of each net's mean accuracy on the stylised pictures of every class."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, EDGE + 0.34 * len(CLASSES)))
    thickness, descriptions = 0.8 / len(nets), []
    axis.set_axisbelow(True)
    for i, (name, runs) in enumerate(nets.items()):
        percent = [100 * mean(shares) if (shares := _of_class(runs, label)) else 0.0 for label in CLASSES]
        places = [label + (i - (len(nets) - 1) / 2) * thickness for label in range(len(CLASSES))]
        axis.barh(places, percent, thickness, color=look(name)["color"], label=name)
        high, low = max(percent), min(percent)
        best, worst = CLASSES[percent.index(high)], CLASSES[percent.index(low)]
        descriptions.append(f"{name} best for {best} ({high:.0f} %), worst for {worst} ({low:.0f} %)")
    axis.axvline(CHANCE, color="#777777", linewidth=0.8, linestyle=":")
    axis.set_yticks(range(len(CLASSES)), CLASSES, fontsize=SMALL)
    axis.set(ylim=(len(CLASSES) - 0.4, -0.6), xlabel="stylised: accuracy in %")
    axis.grid(False, axis="y")
    figure.legend(loc="outside upper center", ncols=len(nets), fontsize=SMALL)
    figure.set_label("; ".join(descriptions))
    return figure


def _of_class(runs: Sequence[Run], label: str) -> list[float]:
    """Accuracies of all runs on the stylised pictures of one class, given by its name."""
    rows = [row for run in runs for row in run.tables.get("accuracy by class", ())]
    return [row["stylised"] for row in rows if row["class"] == label and row.get("stylised") is not None]


@styled
def ratio_figure(ratios: Mapping[str, tuple[float, float]]) -> Figure:
    """Draw bars of the ratios that the paper prints, as we measured them, with diamonds for the paper's values.
    ``ratios`` has both in per cent."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, EDGE + 0.45 * len(ratios)))
    for y, (ours, paper) in enumerate(ratios.values()):
        axis.barh(y, ours, 0.5, color=look("RR")["color"])
        axis.plot([paper], [y], "D", color="#333333", markerfacecolor="none", markersize=7)
    axis.axvline(0, color="#000000", linewidth=0.8)
    axis.set_yticks(range(len(ratios)), list(ratios), fontsize=SMALL)
    axis.set(ylim=(len(ratios) - 0.4, -0.6), xlabel="more or less, in %")
    axis.grid(False, axis="y")
    descriptions = [f"{name}: {ours:+.1f} %, the paper {paper:+.1f} %" for name, (ours, paper) in ratios.items()]
    figure.set_label("; ".join(descriptions).replace("\n", " "))
    return figure

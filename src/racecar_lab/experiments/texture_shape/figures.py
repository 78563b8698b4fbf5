"""Charts of texture-shape: accuracies on new shapes, by class, with a random split beside, and the paper's ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.datasets.texture_shape import CLASSES
from racecar_lab.experiments.paper_figures import having
from racecar_lab.experiments.texture_shape.claims import PAPER, STAGE
from racecar_lab.experiments.texture_shape.pictures import confidence_figure, rebuilt_figure
from racecar_lab.experiments.texture_shape.ratios import CHANCE, found_ratios
from racecar_lab.experiments.texture_shape.rows import USUAL, mean_of, rows, settings, values
from racecar_lab.experiments.texture_shape.splitting import CLUSTERS
from racecar_lab.report.clustered import cluster_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

ROW, EDGE = 0.3, 0.7
"""Inches: of a row, and of what is around a panel."""
PANELS = {
    "test_accuracy": "stylised: accuracy in %",
    "silhouettes_accuracy": "silhouettes: accuracy in %",
    "edges_accuracy": "edges: accuracy in %",
    "shape_bias": "decisions by shape in %",
}
Rows = Mapping[str, Sequence["Run"]]


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """By title, for each setting."""
    figures = {}
    for where, some in settings(runs).items():
        nets, random = rows(some, STAGE), rows(some, STAGE, "random")
        if nets:
            figures[f"Shapes that no net has seen: folds, their mean and 95 % interval (◇: the paper){where}"] = (
                accuracy_figure(nets)
            )
        if both := [name for name in nets if name in random]:
            title = "Why a random split misleads: the same nets, tested on shapes that they know and on new ones"
            figures[f"{title}{where}"] = split_figure(nets, random, both)
        if usual := {name: nets[name] for name in USUAL if name in nets}:
            figures[f"Stylised pictures of new shapes, class by class{where}"] = class_figure(usual)
        if ratios := found_ratios(some):
            figures[f"What the paper prints as ratios (◇), and ours{where}"] = ratio_figure(ratios)
        if seen := _having(nets, "confidences"):
            figures[f"What nets say of four pictures of new shapes{where}"] = confidence_figure(seen)
        if first := _having(rows(some, "A"), "rebuilt"):
            title = "Stylised pictures of new shapes and, below, what the reverse pass rebuilds, brightness fitted"
            figures[f"{title}{where}"] = rebuilt_figure(first)
    return figures


def _having(nets: Rows, array: str) -> dict[str, list[Run]]:
    """Of the usual nets, the runs that have kept it; a dead one shows nothing."""
    found = {name: [run for run in having(nets[name], array) if not run.dead] for name in USUAL if name in nets}
    return {name: some for name, some in found.items() if some}


@styled
def accuracy_figure(nets: Rows) -> Figure:
    """A panel for each set, and one for the shape bias; a row for each kind of net."""
    height = EDGE + ROW * len(nets)
    figure, axes = new_figure(len(PANELS), 1, (WIDTH, len(PANELS) * height))
    said = []
    for (axis,), (metric, title) in zip(axes, PANELS.items(), strict=True):
        told = [_row(axis, y, metric, name, own) for y, (name, own) in enumerate(nets.items())]
        axis.set_yticks(range(len(nets)), [_label(name, own) for name, own in nets.items()], fontsize=SMALL)
        axis.set(ylim=(len(nets) - 0.5, -0.5), xlabel=title)
        axis.grid(False, axis="y")
        if metric != "shape_bias":
            axis.axvline(CHANCE, color="#777777", linewidth=0.8, linestyle=":")
        said.append(f"{title}: {', '.join(filter(None, told))}")
    figure.set_label("; ".join(said))
    return figure


def _row(axis: Axes, y: int, metric: str, name: str, runs: Sequence[Run]) -> str:
    """One kind of net: a dot for each fold; returns its mean in words."""
    found, style = mean_of(runs, metric), look(name.split(",")[0])
    if found is None:
        return ""
    folds = cluster_means(values(runs, metric), CLUSTERS).values()
    axis.plot([100 * one for one in folds], [y] * len(folds), linestyle="none", markersize=4, alpha=0.4, **style)
    low, high = found.interval() or (found.mean, found.mean)
    axis.plot([100 * low, 100 * high], [y, y], color=style["color"], linewidth=1.6)
    axis.plot([100 * found.mean], [y], linestyle="none", markersize=8, **style)
    for one in PAPER:
        if (one.metric, one.variant) == (metric, name):
            axis.plot([100 * one.value], [y], marker="D", markersize=6, markerfacecolor="none", color="#333333")
    return f"{name} {100 * found.mean:.1f}"


def _label(name: str, runs: Sequence[Run]) -> str:
    dead = sum(run.dead for run in runs)
    short = name.replace(", ", ",\n")
    return f"{short} ({dead} of {len(runs)} dead)" if dead else short


@styled
def split_figure(nets: Rows, random: Rows, names: Sequence[str]) -> Figure:
    """For each set, from what a split by shape picture shows to what a random one does."""
    sets = {name: title for name, title in PANELS.items() if name != "shape_bias"}
    figure, axes = new_figure(len(sets), 1, (WIDTH, len(sets) * (EDGE + ROW * len(names)) + 0.3))
    said = []
    for (axis,), (metric, title) in zip(axes, sets.items(), strict=True):
        for y, name in enumerate(names):
            ends = [mean_of(own[name], metric) for own in (nets, random)]
            if None in ends:
                continue
            new, known = (100 * one.mean for one in ends if one is not None)
            colour = look(name.split(",")[0])["color"]
            axis.plot([new, known], [y, y], color=colour, linewidth=1.4)
            first = y == 0 and metric == "test_accuracy"
            axis.plot(new, y, "o", color=colour, label="new shapes (by shape picture)" if first else None)
            axis.plot(
                known, y, "o", color=colour, markerfacecolor="white", label="known shapes (random)" if first else None
            )
            said.append(f"{name}, {title.split(':')[0]}: {new:.0f} % of new shapes, {known:.0f} % of known ones")
        axis.axvline(CHANCE, color="#777777", linewidth=0.8, linestyle=":")
        axis.set_yticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=SMALL)
        axis.set(ylim=(len(names) - 0.5, -0.5), xlim=(0, 102), xlabel=title)
        axis.grid(False, axis="y")
    figure.legend(loc="outside upper center", ncols=1, fontsize=SMALL)
    figure.set_label("; ".join(said))
    return figure


@styled
def class_figure(nets: Rows) -> Figure:
    """Bars of the mean accuracy of every class."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, EDGE + 0.34 * len(CLASSES)))
    thick, said = 0.8 / len(nets), []
    axis.set_axisbelow(True)
    for i, (name, runs) in enumerate(nets.items()):
        each = [100 * mean(some) if (some := _of_class(runs, label)) else 0.0 for label in CLASSES]
        places = [label + (i - (len(nets) - 1) / 2) * thick for label in range(len(CLASSES))]
        axis.barh(places, each, thick, color=look(name)["color"], label=name)
        best, worst = (CLASSES[each.index(some(each))] for some in (max, min))
        said.append(f"{name} best for {best} ({max(each):.0f} %), worst for {worst} ({min(each):.0f} %)")
    axis.axvline(CHANCE, color="#777777", linewidth=0.8, linestyle=":")
    axis.set_yticks(range(len(CLASSES)), CLASSES, fontsize=SMALL)
    axis.set(ylim=(len(CLASSES) - 0.4, -0.6), xlabel="stylised: accuracy in %")
    axis.grid(False, axis="y")
    figure.legend(loc="outside upper center", ncols=len(nets), fontsize=SMALL)
    figure.set_label("; ".join(said))
    return figure


def _of_class(runs: Sequence[Run], label: str) -> list[float]:
    rows = [row for run in runs for row in run.tables.get("accuracy by class", ())]
    return [row["stylised"] for row in rows if row["class"] == label and row.get("stylised") is not None]


@styled
def ratio_figure(ratios: Mapping[str, tuple[float, float]]) -> Figure:
    """Bars of ours; the paper's is a diamond."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, EDGE + 0.45 * len(ratios)))
    for y, (ours, paper) in enumerate(ratios.values()):
        axis.barh(y, ours, 0.5, color=look("RR")["color"])
        axis.plot([paper], [y], "D", color="#333333", markerfacecolor="none", markersize=7)
    axis.axvline(0, color="#000000", linewidth=0.8)
    axis.set_yticks(range(len(ratios)), list(ratios), fontsize=SMALL)
    axis.set(ylim=(len(ratios) - 0.4, -0.6), xlabel="more or less, in %")
    axis.grid(False, axis="y")
    said = [f"{name}: {ours:+.1f} %, the paper {paper:+.1f} %" for name, (ours, paper) in ratios.items()]
    figure.set_label("; ".join(said).replace("\n", " "))
    return figure

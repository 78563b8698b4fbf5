"""Figures for experiments that draw none themselves: all runs' values of a metric, and curves over training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.experiment import Paper
from racecar_lab.report import words
from racecar_lab.report.groups import Group, Metric, collect, printed_value
from racecar_lab.report.settings import label
from racecar_lab.report.statistics import estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 120
"""Maximal number of points on a line: more cannot be seen, and make the page heavy."""
LONGEST = 32
"""Maximal number of letters of a name in a figure; the rest is cut off."""
ROW = 0.3
"""Height of a row of runs in a figure, in inches."""
BROKEN = "#A3241C"
"""Colour of the text that counts the nets of a group that died or diverged."""


def usual_figures(groups: Sequence[Group], metrics: Sequence[Metric], paper: Sequence[Paper] = ()) -> dict[str, Figure]:
    """The figures of an experiment that draws none itself, title → figure. For each setting: every run of some metrics;
    then curves over training."""
    runs, over_training = {}, {}
    for setting, members in collect((group.setting, group) for group in groups).items():
        where = f" ({label(setting)})" if setting else ""
        measured = [
            (name, (stage, name))
            for stage, name in metrics
            if any(group.values(name) for group in members if group.stage == stage)
        ]
        for name, stages in collect(measured).items():
            known = {(group, name): value.value for group in members if (value := printed_value(paper, group, name))}
            diamonds = "; ◇: the paper" if known else ""
            title = f"{name}: every run, with the mean and its 95 % interval{diamonds}{where}"
            runs[title] = runs_figure(members, stages, known)
        for stage, name in dict.fromkeys((group.stage, name) for group in members for name in curves(group)):
            title = f"{name}, stage {stage}, over training: mean ± sd{where}"
            over_training[title] = curves_figure(members, stage, name)
    return runs | over_training


@styled
def runs_figure(
    groups: Sequence[Group],
    metrics: Sequence[Metric],
    paper: Mapping[tuple[Group, str], float],
    name_of: Callable[[Group], str] | None = None,
) -> Figure:
    """Every run as a dot, the mean with its 95 % interval below them, and the paper's value as a hollow diamond; dead
    and diverged nets are counted beside their row.

    Args:
        groups: groups of one setting.
        metrics: stage and name of each panel; the panels stand below each other.
        paper: values that the paper prints.
        name_of: the text beside a group; None: its variant, with λ where that is needed.
    """
    panels = [(stage, name, [group for group in groups if group.stage == stage]) for stage, name in metrics]
    heights = [0.75 + ROW * len(rows) for *_, rows in panels]
    figure, axes = new_figure(len(panels), 1, (WIDTH, sum(heights)), height_ratios=heights)
    labels = []
    for (axis,), (stage, name, rows) in zip(axes, panels, strict=True):
        names = [_name(group, rows) if name_of is None else _text(name_of(group)) for group in rows]
        means = [_row(axis, y, group, name, paper.get((group, name))) for y, group in enumerate(rows)]
        axis.set_yticks(range(len(rows)), names)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.grid(False, axis="y")
        axis.set(xlabel=_text(name), title=_text(f"stage {stage}"))
        axis.locator_params(axis="x", nbins=5)
        texts = [f"{who} {words.number(mean, 3)}" for who, mean in zip(names, means, strict=True) if mean is not None]
        labels.append(f"mean {name}, stage {stage}: {', '.join(texts) or 'no net is left'}")
    if len({name for _, name in metrics}) == 1:  # one axis for all, so that stages can be compared
        low, high = zip(*(axis.get_xlim() for (axis,) in axes), strict=True)
        for (axis,) in axes:
            axis.set_xlim(min(low), max(high))
    figure.set_label("; ".join(labels))
    return figure


def _row(axis: Axes, y: float, group: Group, metric: str, paper: float | None) -> float | None:
    """Draw the runs of a group as a row of dots, and return their mean. Nets that died are neither drawn nor part of
    the mean: their number is written beside."""
    dead = set(group.dead)
    values = [value for seed, value in group.values(metric).items() if seed not in dead]
    style = look(group.variant, round(y))
    beside = [y - 0.16 + 0.2 * (i / max(1, len(values) - 1) - 0.5) for i in range(len(values))]  # none hides another
    axis.plot(values, beside, linestyle="none", markersize=4.5, alpha=0.75, **style)
    mean = group.mean_of(metric, dead)
    if mean is not None:
        axis.plot(mean.interval() or (mean.mean, mean.mean), [y + 0.24] * 2, color=style["color"], linewidth=1.4)
        axis.plot([mean.mean] * 2, [y + 0.1, y + 0.38], color=style["color"], linewidth=2.2)
    if paper is not None:
        axis.plot([paper], [y + 0.24], marker="D", markersize=6, markerfacecolor="none", color="#333333")
    if group.broken:
        axis.annotate(f"✕ {group.broken_text}", (0.01, y + 0.24), xycoords=("axes fraction", "data"), va="center",
                      fontsize=SMALL, color=BROKEN)  # fmt: skip
    return None if mean is None else mean.mean


@styled
def curves_figure(groups: Sequence[Group], stage: str, name: str) -> Figure:
    """A curve over training of every group of a stage: means over the seeds with a band of ± one standard deviation."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, 2.7))
    members = [group for group in groups if group.stage == stage]
    means = {_name(group, members): _line(axis, group, curves(group).get(name, {}), members) for group in members}
    heights = [height for line in means.values() for height in line]
    if min(heights) > 0 and max(heights) > 100 * min(heights):
        axis.set_yscale("log")
        # Exponents above the line are too small for a telephone.
        axis.yaxis.set_major_formatter(lambda value, _: words.number(value, 2))
        axis.yaxis.set_minor_formatter(lambda value, _: "")
    axis.set(xlabel=_over(groups), ylabel=_text(name), title=_text(f"stage {stage}"))
    figure.legend(loc="outside upper center", ncols=3, fontsize=SMALL)
    ends = {who: (words.number(line[0], 3), words.number(line[-1], 3)) for who, line in means.items() if line}
    texts = [f"{who} from {first} to {last}" for who, (first, last) in ends.items()]
    figure.set_label(f"mean {name}, stage {stage}: {', '.join(texts)}")
    return figure


def curves(group: Group) -> dict[str, dict[float, list[float]]]:
    """The curves over training of a group's runs: name of a curve → place (epoch or step) → values of the seeds there.
    Curves that are 0 all the time are left out."""
    over = _over([group])
    points: dict[str, list[tuple[float, float]]] = {}
    for run in group.runs.values():
        of_run = run.record.get("curves", {})
        for name, values in of_run.items():
            places = of_run.get(over, range(1, len(values) + 1))
            if name != over and len(values) == len(places):
                pairs = zip(places, values, strict=True)
                points.setdefault(name, []).extend(pair for pair in pairs if None not in pair)
    return {name: collect(pairs) for name, pairs in points.items() if any(value for _, value in pairs)}


def _line(axis: Axes, group: Group, curve: Mapping[float, list[float]], others: Sequence[Group]) -> list[float]:
    """Draw the mean curve of a group with a band of ± one standard deviation, if it has points; returns the means."""
    places = sorted(curve)
    places = places[:: -max(1, -(-len(places) // POINTS))][::-1]  # from the end, so that the last one stays
    means = [mean for place in places if (mean := estimate(curve[place])) is not None]
    if not means:
        return []
    middle = [mean.mean for mean in means]
    low, high = ([mean.mean + sign * (mean.sd or 0.0) for mean in means] for sign in (-1, 1))
    style = look(group.variant, others.index(group)) | {"linewidth": 1.2, "markersize": 4}
    axis.plot(places, middle, label=_name(group, others), markevery=max(1, len(places) // 6), **style)
    axis.fill_between(places, low, high, color=style["color"], alpha=0.15, linewidth=0)
    return middle


def _over(groups: Sequence[Group]) -> str:
    """Label of the horizontal axis of curves: "epoch", "step", or "point" if records have neither."""
    names = {name for group in groups for run in group.runs.values() for name in run.record.get("curves", {})}
    return next((name for name in ("epoch", "step") if name in names), "point")


def _name(group: Group, others: Sequence[Group]) -> str:
    """Label of a group in a figure: its variant, with λ if others of the same variant are drawn."""
    alone = sum(other.variant == group.variant for other in others) == 1
    return _text(group.variant) if alone else f"{_text(group.variant)} {words.number(group.weight, 2)}"


def _text(name: str) -> str:
    """A name as a text for matplotlib: cut if it is long, and no formula whatever its letters are."""
    return (name if len(name) <= LONGEST else name[: LONGEST - 1] + "…").replace("$", r"\$")

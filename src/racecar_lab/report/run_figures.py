"""Figures that every experiment has: all runs, curves over training, and sweeps over the coefficient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.report import words
from racecar_lab.report.groups import Group, Metric
from racecar_lab.report.statistics import Estimate, estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

POINTS = 120
"""More of them on a line cannot be seen, and make the page heavy."""
LONGEST = 32
"""Letters of a name."""
ROW = 0.3
"""Inches of a row of runs."""
LOST = "#A3241C"
"""The colour of what is said of nets that were lost."""


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
        groups: of one setting.
        metrics: stage and name of each panel; the panels stand below each other.
        paper: values that the paper prints.
        name_of: what stands beside a group; its variant, with a coefficient where that is needed, if None.
    """
    shown = [(stage, name, [group for group in groups if group.stage == stage]) for stage, name in metrics]
    heights = [0.75 + ROW * len(rows) for *_, rows in shown]
    figure, axes = new_figure(len(shown), 1, (WIDTH, sum(heights)), height_ratios=heights)
    said = []
    for (axis,), (stage, name, rows) in zip(axes, shown, strict=True):
        names = [_name(group, rows) if name_of is None else _text(name_of(group)) for group in rows]
        means = [_row(axis, y, group, name, paper.get((group, name))) for y, group in enumerate(rows)]
        axis.set_yticks(range(len(rows)), names)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.grid(False, axis="y")
        axis.set(xlabel=_text(name), title=_text(f"stage {stage}"))
        axis.locator_params(axis="x", nbins=5)
        told = [f"{one} {_short(value)}" for one, value in zip(names, means, strict=True) if value is not None]
        said.append(f"mean {name}, stage {stage}: {', '.join(told) or 'no net is left'}")
    if len({name for _, name in metrics}) == 1:  # one axis for all, so that stages can be compared
        low, high = zip(*(axis.get_xlim() for (axis,) in axes), strict=True)
        for (axis,) in axes:
            axis.set_xlim(min(low), max(high))
    figure.set_label("; ".join(said))
    return figure


def _row(axis: Axes, y: float, group: Group, metric: str, paper: float | None) -> float | None:
    """The runs of a group; returns their mean. Nets that died are no part of it: they are counted."""
    dead = set(group.dead)
    values = [value for seed, value in group.values(metric).items() if seed not in dead]
    style = look(group.variant, round(y))
    axis.plot(values, _beside(y - 0.16, len(values)), linestyle="none", markersize=4.5, alpha=0.75, **style)
    found = group.mean_of(metric, dead)
    if found is not None:
        ends = found.interval() or (found.mean, found.mean)
        axis.plot(ends, [y + 0.24] * 2, color=style["color"], linewidth=1.4)
        axis.plot([found.mean] * 2, [y + 0.1, y + 0.38], color=style["color"], linewidth=2.2)
    if paper is not None:
        axis.plot([paper], [y + 0.24], marker="D", markersize=6, markerfacecolor="none", color="#333333")
    if group.lost:
        axis.annotate(f"✕ {group.told_lost}", (0.01, y + 0.24), xycoords=("axes fraction", "data"), va="center",
                      fontsize=SMALL, color=LOST)  # fmt: skip
    return None if found is None else found.mean


@styled
def curves_figure(groups: Sequence[Group], names: Sequence[Metric] | None = None) -> Figure:
    """Means over the seeds with a band of ± one standard deviation; a panel for each stage and curve.

    Args:
        groups: of one setting, at most one for each stage and variant; some have curves.
        names: stage and name of the curves; all, if None.
    """
    shown = curve_names(groups) if names is None else names
    figure, axes = new_figure(len(shown), 1, (WIDTH, 2.7 * len(shown)))
    said = []
    for (axis,), (stage, name) in zip(axes, shown, strict=True):
        members = [(group, curves(group).get(name, {})) for group in groups if group.stage == stage]
        means = [(group, _line(axis, group, curve, i)) for i, (group, curve) in enumerate(members)]
        heights = [height for _, some in means for height in some]
        if min(heights) > 0 and max(heights) > 100 * min(heights):
            axis.set_yscale("log")
            _plain(axis.yaxis)
        axis.set(xlabel=_over(groups), ylabel=_text(name), title=_text(f"stage {stage}"))
        told = [f"{group.variant} from {_short(some[0])} to {_short(some[-1])}" for group, some in means if some]
        said.append(f"mean {name}, stage {stage}: {', '.join(told)}")
    _legend(figure)
    figure.set_label("; ".join(said))
    return figure


def curve_names(groups: Sequence[Group]) -> list[Metric]:
    """Stage and name of all curves that there are."""
    return list(dict.fromkeys((group.stage, name) for group in groups for name in curves(group)))


@styled
def sweep_figure(groups: Sequence[Group], metrics: Sequence[Metric]) -> Figure:
    """Metrics over the coefficient: one line for each variant, its band ± one standard deviation.

    Variants without a coefficient are level lines. From the runs that ``Experiment.figures`` is given:
    ``sweep_figure(gather(runs).groups, [("A", "test_accuracy")])``.

    Args:
        groups: of one setting.
        metrics: stage and name of each panel.
    """
    figure, axes = new_figure(len(metrics), 1, (WIDTH, 3.0 * len(metrics)))
    said = []
    for (axis,), (stage, metric) in zip(axes, metrics, strict=True):
        members = [group for group in groups if group.stage == stage]
        smallest = min((group.coefficient for group in members if group.coefficient), default=None)
        if smallest is not None:  # a coefficient of 0 has its place left of the smallest one
            zero = any(group.coefficient == 0 for group in members)
            axis.set_xscale("symlog", linthresh=smallest, linscale=0.4) if zero else axis.set_xscale("log")
            _plain(axis.xaxis)
        told = []
        for i, variant in enumerate(dict.fromkeys(group.variant for group in members)):
            told += _sweep(axis, [group for group in members if group.variant == variant], metric, look(variant, i))
        axis.set(xlabel="coefficient", ylabel=_text(metric), title=_text(f"stage {stage}"))
        said.append(f"mean {metric}, stage {stage}: {', '.join(told)}")
    _legend(figure)
    figure.set_label("; ".join(said))
    return figure


def _sweep(axis: Axes, groups: Sequence[Group], metric: str, style: Mapping[str, Any]) -> list[str]:
    """One variant; returns what is seen of it."""
    colour, variant = style["color"], groups[0].variant
    points, levels = [], []
    for group in groups:
        found = group.mean_of(metric)
        if found is not None and group.coefficient is None:
            levels.append(found.mean)
            axis.axhline(found.mean, color=colour, linestyle="--", linewidth=1.2, label=_text(variant))
            sd = found.sd or 0.0
            axis.axhspan(found.mean - sd, found.mean + sd, color=colour, alpha=0.12, linewidth=0)
        elif found is not None:
            points.append((group.coefficient, found))
        if group.diverged and group.coefficient is not None:
            _mark_diverged(axis, group.coefficient, group)
    if points:
        x, low, middle, high = _band(points)
        axis.plot(x, middle, label=_text(variant), markersize=6, linewidth=1.2, **style)
        axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.vlines(x, low, high, color=colour, linewidth=1.0)
        return [f"{variant} {', '.join(f'{_short(m)} at {_short(at)}' for at, m in zip(x, middle, strict=True))}"]
    return [f"{variant} {_short(level)}" for level in levels]


def curves(group: Group) -> dict[str, dict[float, list[float]]]:
    """Name of a curve → place → values of the seeds there; without those that are 0 all the time."""
    over = _over([group])
    found: dict[str, dict[float, list[float]]] = {}
    for run in group.runs.values():
        given = run.record.get("curves", {})
        for name, values in given.items():
            places = given.get(over, range(1, len(values) + 1))
            if name == over or len(values) != len(places):
                continue
            for place, value in zip(places, values, strict=True):
                if place is not None and value is not None:
                    found.setdefault(name, {}).setdefault(place, []).append(value)
    return {name: curve for name, curve in found.items() if any(map(any, curve.values()))}


def _legend(figure: Figure) -> None:
    """One for all panels, above them."""
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=min(3, len(handles)), fontsize=8)


def _name(group: Group, others: Sequence[Group]) -> str:
    """The variant, with its coefficient where that is needed to tell it from others."""
    alone = sum(other.variant == group.variant for other in others) == 1
    return _text(group.variant) if alone else f"{_text(group.variant)} {words.number(group.coefficient, 2)}"


def _text(name: str) -> str:
    """A name as it stands in a figure: not too long, and no formula whatever its letters are."""
    return (name if len(name) <= LONGEST else name[: LONGEST - 1] + "…").replace("$", r"\$")


def _beside(x: float, count: int) -> list[float]:
    """Places side by side around x, so that equal values do not hide each other."""
    return [x + 0.2 * (i / max(1, count - 1) - 0.5) for i in range(count)]


def _mark_diverged(axis: Axes, x: float, group: Group) -> None:
    text = f"✕ {len(group.diverged)}/{group.total}"
    axis.margins(y=0.14)  # room for it below the data
    axis.annotate(text, (x, 0.02), xycoords=("data", "axes fraction"), ha="center", fontsize=SMALL, color=LOST)


def _plain(axis: Axis) -> None:
    """Powers of ten as "1e-3" and "100": exponents above the line are too small for a telephone."""
    axis.set_major_formatter(lambda value, _: words.number(value, 2) if value else "0")
    axis.set_minor_formatter(lambda value, _: "")


def _short(value: float) -> str:
    return words.number(value, 3)


def _over(groups: Sequence[Group]) -> str:
    """What the curves run over."""
    names = {name for group in groups for run in group.runs.values() for name in run.record.get("curves", {})}
    return next((name for name in ("epoch", "step") if name in names), "point")


def _line(axis: Axes, group: Group, curve: Mapping[float, list[float]], i: int) -> list[float]:
    """Draw one curve, if it has points; returns the means."""
    places = sorted(curve)
    places = places[:: -max(1, -(-len(places) // POINTS))][::-1]  # from the end, so that the last one stays
    points = [(place, found) for place in places if (found := estimate(curve[place])) is not None]
    if not points:
        return []
    x, low, middle, high = _band(points)
    style = look(group.variant, i)
    style |= {"linewidth": 1.2, "markersize": 4, "markevery": max(1, len(x) // 6)}
    weight = "" if group.coefficient is None else f" ({words.number(group.coefficient, 2)})"
    axis.plot(x, middle, label=_text(group.variant) + weight, **style)
    axis.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
    return middle


def _band(points: Sequence[tuple[Any, Estimate]]) -> tuple[list[float], list[float], list[float], list[float]]:
    x = [place for place, _ in points]
    middle = [found.mean for _, found in points]
    spread = [found.sd or 0.0 for _, found in points]
    low = [m - s for m, s in zip(middle, spread, strict=True)]
    return x, low, middle, [m + s for m, s in zip(middle, spread, strict=True)]

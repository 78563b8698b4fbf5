"""Figures that every experiment has: all runs, curves over training, and sweeps over the coefficient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from racecar.inspect.style import look, new_figure, styled
from racecar.lab.report import words
from racecar.lab.report.groups import Group, Metric
from racecar.lab.report.statistics import Estimate, estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 120
"""More of them on a line cannot be seen, and make the page heavy."""
LONGEST = 32
"""Letters of a name."""
_ACROSS = 3


@styled
def runs_figure(
    groups: Sequence[Group],
    metrics: Sequence[Metric],
    paper: Mapping[tuple[Group, str], float],
    name_of: Callable[[Group], str] | None = None,
) -> Figure:
    """Every run as a dot, the mean with its 95 % interval beside them, and the paper's value as a hollow diamond.

    Args:
        groups: of one setting.
        metrics: stage and name of each panel.
        paper: values that the paper prints.
        name_of: what stands below a group; its variant, with a coefficient where that is needed, if None.
    """
    shown = [(stage, name, [group for group in groups if group.stage == stage]) for stage, name in metrics]
    figure, axes = _panels(len(shown), [max(1.8, 0.6 + 0.46 * len(one[2])) for one in shown], 2.7)
    for axis, (stage, name, columns) in zip(axes, shown, strict=True):
        for x, group in enumerate(columns):
            values, style = list(group.values(name).values()), look(group.variant, x)
            axis.plot(_beside(x - 0.14, len(values)), values, linestyle="none", markersize=4, alpha=0.75, **style)
            if (found := estimate(values)) is not None:
                ends = found.interval() or (found.mean, found.mean)
                axis.plot([x + 0.24] * 2, ends, color=style["color"], linewidth=1.4)
                axis.plot([x + 0.12, x + 0.36], [found.mean] * 2, color=style["color"], linewidth=2.2)
            if (printed := paper.get((group, name))) is not None:
                axis.plot([x + 0.24], [printed], marker="D", markersize=6, markerfacecolor="none", color="#333333")
            if group.diverged:
                _mark_diverged(axis, x, group)
        names = [_name(group, columns) if name_of is None else _text(name_of(group)) for group in columns]
        axis.set_xticks(range(len(columns)), names)
        axis.set_xlim(-0.5, len(columns) - 0.5)
        axis.tick_params(axis="x", labelsize=7.5)
        axis.grid(False, axis="x")
        axis.set_title(_text(f"{name}, {stage}"))
    return figure


@styled
def curves_figure(groups: Sequence[Group]) -> Figure:
    """Means over the seeds with a band of ± one standard deviation; a panel for each stage and curve.

    Args:
        groups: of one setting, at most one for each stage and variant; some have curves.
    """
    shown = dict.fromkeys((group.stage, name) for group in groups for name in curves(group))
    figure, axes = _panels(len(shown), [3.1], 2.5)
    for axis, (stage, name) in zip(axes, shown, strict=True):
        members = [(group, curves(group).get(name, {})) for group in groups if group.stage == stage]
        means = [height for i, (group, curve) in enumerate(members) for height in _line(axis, group, curve, i)]
        if min(means) > 0 and max(means) > 100 * min(means):
            axis.set_yscale("log")
        axis.set(title=_text(f"{name}, {stage}"), xlabel=_over(groups))
    _legend(figure)
    return figure


@styled
def sweep_figure(groups: Sequence[Group], metrics: Sequence[Metric]) -> Figure:
    """Metrics over the coefficient: one line for each variant, its band ± one standard deviation.

    Variants without a coefficient are level lines. From the runs that ``Experiment.figures`` is given:
    ``sweep_figure(gather(runs).groups, [("A", "test_accuracy")])``.

    Args:
        groups: of one setting.
        metrics: stage and name of each panel.
    """
    figure, axes = _panels(len(metrics), [3.3 if len(metrics) > 1 else 4.4], 3.0)
    for axis, (stage, metric) in zip(axes, metrics, strict=True):
        members = [group for group in groups if group.stage == stage]
        smallest = min((group.coefficient for group in members if group.coefficient), default=None)
        if smallest is not None:  # a coefficient of 0 has its place left of the smallest one
            zero = any(group.coefficient == 0 for group in members)
            axis.set_xscale("symlog", linthresh=smallest, linscale=0.4) if zero else axis.set_xscale("log")
        for i, variant in enumerate(dict.fromkeys(group.variant for group in members)):
            _sweep(axis, [group for group in members if group.variant == variant], metric, look(variant, i))
        axis.set(xlabel="coefficient", title=_text(f"{metric}, {stage}"))
    _legend(figure)
    return figure


def _sweep(axis: Axes, groups: Sequence[Group], metric: str, style: Mapping[str, Any]) -> None:
    """One variant."""
    colour, variant = style["color"], groups[0].variant
    points = []
    for group in groups:
        found = estimate(list(group.values(metric).values()))
        if found is not None and group.coefficient is None:
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
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=min(6, len(handles)), fontsize=8)


def _panels(count: int, widths: Sequence[float], height: float) -> tuple[Figure, list[Axes]]:
    """Axes in rows of three; those that are not needed are taken away."""
    columns = min(_ACROSS, count)
    rows = -(-count // columns)
    figure, axes = new_figure(rows, columns, (max(widths) * columns + 0.3, height * rows))
    flat = [axis for line in axes for axis in line]
    for axis in flat[count:]:
        figure.delaxes(axis)
    return figure, flat[:count]


def _name(group: Group, others: Sequence[Group]) -> str:
    """The variant, with its coefficient where that is needed to tell it from others."""
    alone = sum(other.variant == group.variant for other in others) == 1
    return _text(group.variant) if alone else f"{_text(group.variant)}\n{words.number(group.coefficient, 2)}"


def _text(name: str) -> str:
    """A name as it stands in a figure: not too long, and no formula whatever its letters are."""
    return (name if len(name) <= LONGEST else name[: LONGEST - 1] + "…").replace("$", r"\$")


def _beside(x: float, count: int) -> list[float]:
    """Places side by side around x, so that equal values do not hide each other."""
    return [x + 0.2 * (i / max(1, count - 1) - 0.5) for i in range(count)]


def _mark_diverged(axis: Axes, x: float, group: Group) -> None:
    text = f"✕ {len(group.diverged)}/{group.total}"
    axis.margins(y=0.14)  # room for it below the data
    axis.annotate(text, (x, 0.02), xycoords=("data", "axes fraction"), ha="center", fontsize=7, color="#B3261E")


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

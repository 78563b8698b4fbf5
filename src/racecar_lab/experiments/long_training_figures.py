"""Figures of long-training: each metric by depth and variant, compared with Std trained longer and with batch norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from racecar.inspect.style import WIDTH, look, new_figure, styled
from racecar_lab.experiments.paper_figures import chosen, rows_of
from racecar_lab.report.groups import by_setting, collect
from racecar_lab.report.statistics import estimate
from racecar_lab.training.loss_config import LOSS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

ROW, EDGE = 0.3, 0.65
"""Height in inches of a row, which its text needs, and of the margin around a panel."""
SHOWN_TOGETHER = ("longer", "norm", "depth", "weight", *LOSS)
"""Fields of the configuration whose values one figure shows side by side; all other settings have figures of their
own."""
KINDS: dict[str, tuple[str, object]] = {"batch norm": ("norm", "batch"), "longer": ("longer", True)}
"""Suffix of a row's name, as "longer" in "Std, longer" → the field of the configuration and the value that it stands
for."""


class Chart(NamedTuple):
    """The figure of a metric: its title, the label of its axis, and the factor on its values, such as 100 for per
    cent."""

    title: str
    axis: str
    factor: float = 1.0


CHARTS = {
    "test_accuracy": Chart("How accurate?", "test accuracy in %, more is better", 100.0),
    "test_nll": Chart("How likely are the labels?", "negative log-likelihood, less is better"),
    "test_ece": Chart("Is its confidence right?", "calibration error in points, less is better", 100.0),
}


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure, one for each metric and setting: accuracy, likelihood and calibration of every net."""
    figures = {}
    for setting, members in by_setting(chosen(runs), but=SHOWN_TOGETHER).items():
        for metric, chart in CHARTS.items():
            measured = [run for run in members if run.metrics.get(metric) is not None]
            if measured:
                title = f"{chart.title} Every net, and means with 95 % intervals{setting}"
                figures[title] = chart_figure(measured, metric, chart)
    return figures


@styled
def chart_figure(runs: Sequence[Run], metric: str, chart: Chart) -> Figure:
    """Draw a metric: a panel for each depth, a row for each kind of net with all its runs, their mean and its 95 %
    interval. Dead nets are counted in the row's label, and not drawn."""
    depths = sorted(collect((run.config["depth"], run) for run in runs).items())
    panels = {depth: rows_of(members, KINDS) for depth, members in depths}
    heights = [EDGE + ROW * len(rows) for rows in panels.values()]
    figure, axes = new_figure(len(panels), 1, (WIDTH, sum(heights)), height_ratios=heights)
    for (axis,) in axes[1:]:
        axis.sharex(axes[0][0])  # before anything is drawn, so that the limits hold all of it
    parts = []
    for (axis,), (depth, rows) in zip(axes, panels.items(), strict=True):
        means = []
        for y, (name, members) in enumerate(rows.items()):
            alive = [chart.factor * float(run.metrics[metric]) for run in members if not run.dead]
            _row(axis, y, alive, name.split(",")[0].split()[0])
            means += [f"{name} {sum(alive) / len(alive):.3g}"] if alive else []
        parts.append(f"{depth} convolutions: {'; '.join(means)}")
        axis.set_yticks(range(len(rows)), [_label(name, members) for name, members in rows.items()])
        axis.set(ylim=(len(rows) - 0.5, -0.5), xlabel=chart.axis, title=f"{depth} convolutions")
        axis.grid(False, axis="y")
    figure.set_label(f"mean {chart.axis}, {'; '.join(parts)}")
    return figure


def _row(axis: Axes, y: int, values: Sequence[float], variant: str) -> None:
    """Draw one row of a panel, at height ``y``: a dot for each value, their mean and its 95 % interval."""
    result, style = estimate(values), look(variant)
    if result is None:
        return
    axis.plot(values, [y] * len(values), linestyle="none", markersize=4, alpha=0.35, **style)
    axis.plot(result.interval() or (result.mean, result.mean), [y, y], color=style["color"], linewidth=2)
    axis.plot([result.mean], [y], linestyle="none", markersize=8, **style)


def _label(name: str, runs: Sequence[Run]) -> str:
    """Label of a row: its name, with the number of dead nets if there are any."""
    dead = sum(run.dead for run in runs)
    return f"{name} ({dead} of {len(runs)} dead)" if dead else name

"""Figures of long-training: each metric by depth and variant, with Std trained longer and with batch norm beside."""

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
"""Inches: a row is as high as its letters need."""
BESIDE = ("longer", "norm", "depth", "strength", *LOSS)
"""Settings that one figure shows side by side."""
KINDS: dict[str, tuple[str, object]] = {"batch norm": ("norm", "batch"), "longer": ("longer", True)}
"""What a row's name says beside the variant."""


class Chart(NamedTuple):
    """What a figure shows of a metric."""

    title: str
    axis: str
    factor: float = 1.0


CHARTS = {
    "test_accuracy": Chart("How accurate?", "test accuracy in %, more is better", 100.0),
    "test_nll": Chart("How likely are the labels?", "negative log-likelihood, less is better"),
    "test_ece": Chart("Is its confidence right?", "calibration error in points, less is better", 100.0),
}


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """By title: one for each metric and setting."""
    figures = {}
    for where, some in by_setting(chosen(runs), but=BESIDE).items():
        for metric, chart in CHARTS.items():
            measured = [run for run in some if run.metrics.get(metric) is not None]
            if measured:
                title = f"{chart.title} Every net, and means with 95 % intervals{where}"
                figures[title] = chart_figure(measured, metric, chart)
    return figures


@styled
def chart_figure(runs: Sequence[Run], metric: str, chart: Chart) -> Figure:
    """A panel for each depth, a row for each kind of net. Dead nets are counted beside their row, and not drawn."""
    depths = sorted(collect((run.config["depth"], run) for run in runs).items())
    panels = {depth: rows_of(some, KINDS) for depth, some in depths}
    heights = [EDGE + ROW * len(some) for some in panels.values()]
    figure, axes = new_figure(len(panels), 1, (WIDTH, sum(heights)), height_ratios=heights)
    for (axis,) in axes[1:]:
        axis.sharex(axes[0][0])  # before anything is drawn, so that the limits hold all of it
    said = []
    for (axis,), (depth, some) in zip(axes, panels.items(), strict=True):
        told = []
        for y, (name, members) in enumerate(some.items()):
            alive = [chart.factor * float(run.metrics[metric]) for run in members if not run.dead]
            _row(axis, y, alive, name.split(",")[0].split()[0])
            told += [f"{name} {sum(alive) / len(alive):.3g}"] if alive else []
        said.append(f"{depth} convolutions: {'; '.join(told)}")
        axis.set_yticks(range(len(some)), [_label(name, members) for name, members in some.items()])
        axis.set(ylim=(len(some) - 0.5, -0.5), xlabel=chart.axis, title=f"{depth} convolutions")
        axis.grid(False, axis="y")
    figure.set_label(f"mean {chart.axis}, {'; '.join(said)}")
    return figure


def _row(axis: Axes, y: int, values: Sequence[float], variant: str) -> None:
    found, style = estimate(values), look(variant)
    if found is None:
        return
    axis.plot(values, [y] * len(values), linestyle="none", markersize=4, alpha=0.35, **style)
    axis.plot(found.interval() or (found.mean, found.mean), [y, y], color=style["color"], linewidth=2)
    axis.plot([found.mean], [y], linestyle="none", markersize=8, **style)


def _label(name: str, runs: Sequence[Run]) -> str:
    dead = sum(run.dead for run in runs)
    return f"{name} ({dead} of {len(runs)} dead)" if dead else name

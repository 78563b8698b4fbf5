"""Figures of the streams: all claims of each stream and net, and accuracy over the tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from racecar.inspect.style import WIDTH, look, new_figure, styled
from racecar.lab.experiment import Experiment
from racecar.lab.experiments.streams.cells import Where, by_cell, by_method
from racecar.lab.report.forest import forest
from racecar.lab.report.groups import collect
from racecar.lab.report.section import findings_of
from racecar.lab.report.statistics import estimate
from racecar.lab.report.told import judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from racecar.lab.running.run import Run

DRAWN = (
    "Std", "L2 Init", "Orthogonality", "Spectral", "LayerNorm", "CReLU", "linear", "linear + CReLU", "Reset",
)  # fmt: skip
"""Methods that are drawn over the tasks: more lines cannot be told apart. All are in the tables."""
POINTS = 25
"""On a line, at most: each the mean over as many tasks."""
HEIGHT = 4.2


def all_figures(experiment: Experiment[Any], runs: Sequence[Run]) -> dict[str, Figure]:
    """By title."""
    runs = [run for run in runs if run.finished]
    figures: dict[str, Figure] = {}
    if not any(run.purpose for run in runs):
        each = collect((one.claim.text.partition(":")[0], one) for one in judged(findings_of(experiment, runs)))
        figures |= {
            f"Claims on {cell}: gains and their corrected 95 % intervals": forest(some) for cell, some in each.items()
        }
    if any(run.purpose == "search" for run in runs):
        return figures
    for where, some in by_cell(runs).items():
        lines = {name: own for name, own in by_method(some).items() if name in DRAWN}
        name = where.judged_by.removesuffix("_accuracy")
        lines = {method: kept for method, own in lines.items() if (kept := [run for run in own if name in run.arrays])}
        if lines:
            figures[f"Accuracy over tasks: {where}"] = over_tasks(where, lines, name)
    return figures


@styled
def over_tasks(where: Where, lines: Mapping[str, Sequence[Run]], name: str) -> Figure:
    """A line for each method: the mean over its nets, and where that lies with 95 %."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, HEIGHT))
    said = []
    for i, (method, runs) in enumerate(lines.items()):
        style, points = look(method, i), [binned(run.arrays[name]) for run in runs]
        at = [x for x, _ in points[0]]
        found = [estimate([100 * one[j][1] for one in points]) for j in range(len(at))]
        means = [one.mean for one in found if one is not None]
        ends = [one.interval() or (one.mean, one.mean) for one in found if one is not None]
        axis.plot(at, means, label=method, markersize=4, **style)
        axis.fill_between(at, [low for low, _ in ends], [high for _, high in ends], color=style["color"], alpha=0.2)
        said.append(f"{method} from {means[0]:.1f} to {means[-1]:.1f}")
    what = "test accuracy" if name == "test" else "accuracy while learning"
    axis.set(xlabel="task", ylabel=f"{what}, %", title=str(where))
    axis.legend(fontsize="small", ncols=2)
    figure.set_label(f"{what} in %, first and last tasks: {'; '.join(said)}")
    return figure


def binned(values: Tensor) -> list[tuple[float, float]]:
    """The last task of each of at most ``POINTS`` parts, and the part's mean."""
    parts = values.double().tensor_split(min(POINTS, len(values)))
    ends = [sum(len(one) for one in parts[: i + 1]) for i in range(len(parts))]
    return [(float(end), float(part.mean())) for end, part in zip(ends, parts, strict=True)]

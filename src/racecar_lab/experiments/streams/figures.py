"""Figures of the streams: accuracy over the tasks, and the intervals of the claims on each stream and net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from racecar.inspect.style import SMALL, WIDTH, new_figure, styled
from racecar_lab.experiment import Experiment
from racecar_lab.experiments.streams.claims import CELLS
from racecar_lab.experiments.streams.conditions import Conditions, by_conditions, by_method, judged_runs
from racecar_lab.report.findings import Finding
from racecar_lab.report.forest import forest
from racecar_lab.report.groups import collect
from racecar_lab.report.section import findings_of
from racecar_lab.report.statistics import estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from racecar_lab.running.run import Run

DRAWN = {
    "Std": ("#000000", "o"), "L2 Init": ("#999999", "s"), "Orthogonality": ("#E69F00", "^"),
    "Spectral": ("#8C510A", "v"), "LayerNorm": ("#56B4E9", "D"), "CReLU": ("#009E73", "P"), "linear": ("#D55E00", "X"),
    "linear + CReLU": ("#CC79A7", "*"), "Reset": ("#0072B2", "h"),
}  # fmt: skip
"""Names of the methods in the figure of accuracy over the tasks → colour and marker. The tables have all methods, but
more lines could not be told apart."""
POINTS = 25
"""Largest number of points on a line of accuracy over the tasks; each is the mean over equally many tasks."""
HEIGHT = 3.2
"""Height in inches of a panel of accuracy over the tasks."""


def all_figures(experiment: Experiment[Any], runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure: accuracy over the tasks, then the claims on each stream and net."""
    chosen = judged_runs(runs)
    runs = chosen or [run for run in runs if run.finished and run.purpose != "search"]
    findings = findings_of(experiment, chosen) if chosen else []
    findings_by_cell = collect(
        (str(cell), finding)
        for finding in findings
        for cell in CELLS
        if finding.judged and finding.claim.text.startswith(f"{cell}: ")
    )
    figures: dict[str, Figure] = {}
    if panels := panels_of(runs):
        figures["Accuracy over the tasks: means over the nets and their 95 % intervals"] = over_tasks(panels)
    return figures | {
        f"The claims on {cell}": forest([_without_cell(finding, cell) for finding in of_cell])
        for cell, of_cell in findings_by_cell.items()
    }


def _without_cell(finding: Finding, cell: str) -> Finding:
    """Shorten a finding's claim: leave out the stream and net at its beginning, which the figure's title has."""
    return replace(finding, claim=replace(finding.claim, text=finding.claim.text.removeprefix(f"{cell}: ")))


def panels_of(runs: Sequence[Run]) -> dict[Conditions, dict[str, list[Tensor]]]:
    """The data of the figure of accuracy over the tasks: conditions → method → the accuracy of each net on every task,
    (tasks,). Conditions under which no run kept its accuracies are left out."""
    groups = by_conditions(runs).items()
    return {conditions: lines for conditions, compared in groups if (lines := _lines(conditions, compared))}


def _lines(conditions: Conditions, runs: Sequence[Run]) -> dict[str, list[Tensor]]:
    """Name of a method → the accuracy of each of its nets on every task, (tasks,); only for methods that are drawn."""
    name = conditions.judged_by.removesuffix("_accuracy")
    nets = {
        method: [run.arrays[name] for run in runs_of_method if name in run.arrays]
        for method, runs_of_method in by_method(runs).items()
    }
    return {method: nets[method] for method in DRAWN if nets.get(method)}


@styled
def over_tasks(panels: Mapping[Conditions, Mapping[str, Sequence[Tensor]]]) -> Figure:
    """Draw accuracy over the tasks: a panel for each of the conditions, with a line for each method, the mean over its
    nets, and a band of its 95 % interval."""
    figure, axes = new_figure(len(panels), 1, (WIDTH, HEIGHT * len(panels)))
    labels = []
    for (axis,), (conditions, lines) in zip(axes, panels.items(), strict=True):
        summary = []
        for method, nets in lines.items():
            points = [binned(accuracies) for accuracies in nets]
            at_points = (estimate([100 * line[i][1] for line in points]) for i in range(len(points[0])))
            estimates = [at_point for at_point in at_points if at_point is not None]
            means = [at_point.mean for at_point in estimates]
            ends = [at_point.interval() or (at_point.mean, at_point.mean) for at_point in estimates]
            tasks, (colour, marker) = [task for task, _ in points[0]], DRAWN[method]
            axis.plot(tasks, means, label=method, markersize=3.5, color=colour, marker=marker, linewidth=1)
            axis.fill_between(tasks, [low for low, _ in ends], [high for _, high in ends], color=colour, alpha=0.2)
            summary.append(f"{method} {means[0]:.1f} to {means[-1]:.1f}")
        axis.locator_params(axis="x", integer=True)
        ylabel = "test accuracy, %" if conditions.judged_by == "test_accuracy" else "accuracy while learning, %"
        axis.set(xlabel="task", ylabel=ylabel)
        axis.set_title(str(conditions), wrap=True)
        labels.append(f"{conditions}, {ylabel}, from the first tasks to the last: {', '.join(summary)}")
    handles = {line.get_label(): line for (axis,) in axes for line in axis.get_lines()}
    figure.legend(list(handles.values()), list(map(str, handles)), loc="outside upper center", ncols=2, fontsize=SMALL)
    figure.set_label("; ".join(labels))
    return figure


def binned(values: Tensor) -> list[tuple[float, float]]:
    """The points (task, mean) of a line from the values of all tasks, (tasks,).

    The tasks are split into at most ``POINTS`` parts; a point has the number of a part's last task, from 1, and the
    part's mean.
    """
    parts = values.double().tensor_split(min(POINTS, len(values)))
    ends = [sum(map(len, parts[: i + 1])) for i in range(len(parts))]
    return [(float(end), float(part.mean())) for end, part in zip(ends, parts, strict=True)]

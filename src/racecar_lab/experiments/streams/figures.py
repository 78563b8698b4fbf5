"""Figures of the streams: accuracy over the tasks, and the claims of each stream and net."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from racecar.inspect.style import SMALL, WIDTH, new_figure, styled
from racecar_lab.experiment import Experiment
from racecar_lab.experiments.streams.cells import Where, by_cell, by_method, judged_runs
from racecar_lab.experiments.streams.claims import CELLS
from racecar_lab.report.findings import Finding
from racecar_lab.report.forest import forest
from racecar_lab.report.groups import collect
from racecar_lab.report.section import findings_of
from racecar_lab.report.statistics import estimate
from racecar_lab.report.told import judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from racecar_lab.running.run import Run

DRAWN = {
    "Std": ("#000000", "o"), "L2 Init": ("#999999", "s"), "Orthogonality": ("#E69F00", "^"),
    "Spectral": ("#8C510A", "v"), "LayerNorm": ("#56B4E9", "D"), "CReLU": ("#009E73", "P"), "linear": ("#D55E00", "X"),
    "linear + CReLU": ("#CC79A7", "*"), "Reset": ("#0072B2", "h"),
}  # fmt: skip
"""Methods that are drawn over the tasks, with colour and marker: more lines cannot be told apart. All are in the
tables."""
POINTS = 25
"""On a line, at most: each the mean over as many tasks."""
HEIGHT = 3.2
"""Inches of a panel."""


def all_figures(experiment: Experiment[Any], runs: Sequence[Run]) -> dict[str, Figure]:
    """By title: accuracy over the tasks, then the claims on each stream and net."""
    chosen = judged_runs(runs)
    runs = chosen or [run for run in runs if run.finished and run.purpose != "search"]
    claimed = judged(findings_of(experiment, chosen)) if chosen else []
    cells = collect((str(cell), one) for one in claimed for cell in CELLS if one.claim.text.startswith(f"{cell}: "))
    figures: dict[str, Figure] = {}
    if panels := panels_of(runs):
        figures["Accuracy over the tasks: means over the nets and their 95 % intervals"] = over_tasks(panels)
    return figures | {
        f"The claims on {cell}": forest([_anywhere(one, cell) for one in findings]) for cell, findings in cells.items()
    }


def _anywhere(finding: Finding, cell: str) -> Finding:
    """Without the stream and net in its words."""
    return replace(finding, claim=replace(finding.claim, text=finding.claim.text.removeprefix(f"{cell}: ")))


def panels_of(runs: Sequence[Run]) -> dict[Where, dict[str, list[Tensor]]]:
    """Stream and net → method → accuracies by task of each net; nothing where the runs have none."""
    return {where: lines for where, there in by_cell(runs).items() if (lines := _lines(where, there))}


def _lines(where: Where, runs: Sequence[Run]) -> dict[str, list[Tensor]]:
    """Method → accuracies by task of each net."""
    name = where.judged_by.removesuffix("_accuracy")
    nets = {method: [run.arrays[name] for run in its if name in run.arrays] for method, its in by_method(runs).items()}
    return {method: nets[method] for method in DRAWN if nets.get(method)}


@styled
def over_tasks(panels: Mapping[Where, Mapping[str, Sequence[Tensor]]]) -> Figure:
    """A panel for each stream and net, a line for each method."""
    figure, axes = new_figure(len(panels), 1, (WIDTH, HEIGHT * len(panels)))
    labels = []
    for (axis,), (where, lines) in zip(axes, panels.items(), strict=True):
        summary = []
        for method, nets in lines.items():
            points = [binned(one) for one in nets]
            estimates = [estimate([100 * one[i][1] for one in points]) for i in range(len(points[0]))]
            means = [one.mean for one in estimates if one is not None]
            ends = [one.interval() or (one.mean, one.mean) for one in estimates if one is not None]
            at, (colour, marker) = [x for x, _ in points[0]], DRAWN[method]
            axis.plot(at, means, label=method, markersize=3.5, color=colour, marker=marker, linewidth=1)
            axis.fill_between(at, [low for low, _ in ends], [high for _, high in ends], color=colour, alpha=0.2)
            summary.append(f"{method} {means[0]:.1f} to {means[-1]:.1f}")
        axis.locator_params(axis="x", integer=True)
        what = "test accuracy, %" if where.judged_by == "test_accuracy" else "accuracy while learning, %"
        axis.set(xlabel="task", ylabel=what, title=str(where))
        labels.append(f"{where}, {what}, from the first tasks to the last: {', '.join(summary)}")
    drawn = {line.get_label(): line for (axis,) in axes for line in axis.get_lines()}
    figure.legend(list(drawn.values()), list(map(str, drawn)), loc="outside upper center", ncols=2, fontsize=SMALL)
    figure.set_label("; ".join(labels))
    return figure


def binned(values: Tensor) -> list[tuple[float, float]]:
    """The last task of each of at most ``POINTS`` parts, and the part's mean."""
    parts = values.double().tensor_split(min(POINTS, len(values)))
    ends = [sum(len(one) for one in parts[: i + 1]) for i in range(len(parts))]
    return [(float(end), float(part.mean())) for end, part in zip(ends, parts, strict=True)]

"""Draw the figures of docs/ that show records again: ``python -m benchmarks.figures [NAME ...]``, without names all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import records
from benchmarks.bench import depth
from benchmarks.keep_learning_digits import JUDGED, NETS
from benchmarks.tables.common import finished_runs
from benchmarks.tables.few_labels import STARTS, TASKS, by_seed, points
from benchmarks.tables.keep_learning import digits_records, streams_runs
from racecar.inspect.style import WIDTH, look, new_figure, styled
from racecar_lab.experiments.paper_figures import having
from racecar_lab.experiments.picture_figures import vectors_figure
from racecar_lab.experiments.streams.figures import over_tasks, panels_of
from racecar_lab.report.groups import gather
from racecar_lab.report.pictures import save_svg
from racecar_lab.report.statistics import Estimate, estimate
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import DEFAULT, PAPER

WAYS = {"probe_2": "linear probe", "tune_2": "fine-tuned"}
SERIES: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "lRR, the default loss": ("lRR", {**DEFAULT, "norm": "none"}, "RR"),
    "lRR, the paper's loss": ("lRR", {**PAPER, "norm": "none"}, "lRR"),
    "Std with batch norm": ("Std", {"norm": "batch"}, "Std"),
}
"""Series of the figure of docs/when.md: name → variant and settings, and the variant whose colour it has."""
METHODS = {
    "keep_learning": ("keep_learning", "RR"),
    "orthogonality": ("soft orthogonality", "Ort"),
    "plain": ("plain", "Std"),
}
"""Methods of the figure of keep_learning_digits: name in the legend, and the variant whose colour it has."""


@styled
def few_labels(results: Path) -> Figure:
    """Gains over Std without norm at two labels, with 95 % intervals: a panel for each way, a row for each task, depth
    and start. Nets that died are left out."""
    runs = [run for run in finished_runs(results / "few-labels-losses") if not run.dead and not run.config["longer"]]
    figure, axes = new_figure(len(WAYS), 1, (WIDTH, 4.4 * len(WAYS)))
    places = [(depth, start) for depth in (3, 6) for start in STARTS]
    for (axis,), (metric, how) in zip(axes, WAYS.items(), strict=True):
        rows: list[int] = []
        for i, (task, title) in enumerate(TASKS.items()):
            top = (len(places) + 1) * i
            axis.text(0.0, top, title, va="center", fontweight="bold", fontsize=8, transform=axis.get_yaxis_transform())
            rows += [top + 1 + j for j in range(len(places))]
            for name, shift in zip(SERIES, (-0.22, 0.0, 0.22), strict=True):
                gains = [_gain(runs, name, metric, {"task": task, "depth": d, "start": s}) for d, s in places]
                _draw_series(axis, name, gains, [top + 1 + j + shift for j in range(len(places))])
        axis.axvline(0, color="#000000", linewidth=0.8)
        axis.set_yticks(rows, [f"{depth}, {STARTS[start]}" for depth, start in places] * len(TASKS), fontsize=8)
        axis.set(title=how, xlabel="minus Std without norm, points", ylim=(rows[-1] + 0.6, -0.6))
        axis.grid(False, axis="y")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=1, fontsize=8)
    return figure


def _gain(runs: Sequence[Run], name: str, metric: str, place: Mapping[str, Any]) -> Estimate | None:
    """Gain of a series over Std without norm, seed by seed; None where it was not run."""
    variant, fields, _ = SERIES[name]
    ours, std = by_seed(runs, variant, {**place, **fields}), by_seed(runs, "Std", {**place, "norm": "none"})
    return estimate(points(ours, std, metric)) if ours else None


def _draw_series(axis: Axes, name: str, gains: Sequence[Estimate | None], rows: Sequence[float]) -> None:
    """One point with its interval for each row that was run."""
    run = [(y, gain) for y, gain in zip(rows, gains, strict=True) if gain is not None]
    ends = [gain.interval() or (gain.mean, gain.mean) for _, gain in run]
    spread = [[abs(end[side] - gain.mean) for end, (_, gain) in zip(ends, run, strict=True)] for side in (0, 1)]
    named = name not in axis.get_legend_handles_labels()[1]
    axis.errorbar([gain.mean for _, gain in run], [y for y, _ in run], xerr=spread, linestyle="", capsize=1.5,
                  label=name if named else None, markersize=4, **look(SERIES[name][2]))  # fmt: skip


@styled
def keep_learning(results: Path) -> Figure:
    """Accuracy while learning over the tasks of keep_learning_digits: a panel for each net with a line for each method,
    the mean over the judged seeds, and a band from the lowest to the highest of them."""
    records = {(record["net"], record["method"]): record for record in digits_records(results, JUDGED)}
    figure, axes = new_figure(len(NETS), 1, (WIDTH, 2.2 * len(NETS) + 0.6))
    for (axis,), net in zip(axes, NETS, strict=True):
        for method, (name, variant) in METHODS.items():
            (by_seed_and_task,) = records[net, method]["learned"]
            by_task = [[100 * accuracy for accuracy in task] for task in zip(*by_seed_and_task, strict=True)]
            tasks, style = range(1, len(by_task) + 1), look(variant)
            axis.plot(tasks, list(map(mean, by_task)), markersize=4, linewidth=1, label=name, **style)
            low, high = (list(map(end, by_task)) for end in (min, max))
            axis.fill_between(tasks, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axis.axhline(10, color="#666666", linewidth=0.8, linestyle="--")
        axis.set(title=net, ylabel="accuracy while learning, %", ylim=(0, 100))
        axis.locator_params(axis="x", integer=True)
    axes[-1][0].set_xlabel("task")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=1, fontsize=8)
    return figure


def streams(results: Path) -> Figure:
    """Accuracy over the tasks of three streams."""
    return over_tasks(panels_of(streams_runs(results)))


def peaks(results: Path) -> Figure:
    """Right singular vectors of the first layer of the peak experiment's 784-128-2 net."""
    groups = gather(Store(results / "peaks").runs())
    runs = [run for group in groups for run in group.runs.values() if run.config["nets"] == ["two"]]
    return vectors_figure(having(runs, "vectors"), "class means")


def cost_of_depth(results: Path) -> Figure:
    """Time of a step over the number of layers."""
    return depth.figure(records.read(results / "bench", "depth-cpu")["depth-cpu"]["models"])


FIGURES: dict[str, Callable[[Path], Figure]] = {
    "depth": cost_of_depth,
    "when": few_labels,
    "keep-learning": keep_learning,
    "streams": streams,
    "peaks": peaks,
}
"""File of docs/images, without its ending → function."""

if __name__ == "__main__":
    for name in sys.argv[1:] or FIGURES:
        save_svg(FIGURES[name](Path("results")), Path(f"docs/images/{name}.svg"))

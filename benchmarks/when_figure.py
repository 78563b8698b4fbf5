"""The figure of docs/when.md: what lRR gains over Std at two labels, and what batch norm gains.

python -m benchmarks.when_figure [--results results/few-labels-losses] [--figure docs/images/when.svg]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.losses import STARTS, TASKS
from benchmarks.pages import write_figure
from racecar.inspect.style import WIDTH, look, new_figure, styled
from racecar_lab.report.groups import has
from racecar_lab.report.statistics import Estimate, estimate, gains
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import LOSS, PAPER, LossConfig

WAYS = {"probe_2": "linear probe", "tune_2": "fine-tuned"}
DEFAULT = {name: getattr(LossConfig, name) for name in LOSS}
SERIES: dict[str, tuple[str, Mapping[str, Any], str]] = {
    "lRR, the default loss": ("lRR", {**DEFAULT, "norm": "none"}, "RR"),
    "lRR, the paper's loss": ("lRR", {**PAPER, "norm": "none"}, "lRR"),
    "Std with batch norm": ("Std", {"norm": "batch"}, "Std"),
}
"""Name → variant and settings, and in whose colour."""
DEPTHS = (3, 6)


@styled
def figure(folder: Path) -> Figure:
    """Each minus Std without norm, with 95 % intervals: a panel for each way, a row for each task, depth and start.
    Nets that died are left out."""
    runs = [run for run in Store(folder).runs() if run.finished and not run.dead and not run.config["longer"]]
    made, axes = new_figure(len(WAYS), 1, (WIDTH, 4.4 * len(WAYS)))
    places = [(depth, start) for depth in DEPTHS for start in STARTS]
    for (axis,), (metric, how) in zip(axes, WAYS.items(), strict=True):
        rows: list[int] = []
        for at, (task, title) in enumerate(TASKS.items()):
            top = (len(places) + 1) * at
            axis.text(0.0, top, title, va="center", fontweight="bold", fontsize=8, transform=axis.get_yaxis_transform())
            rows += [top + 1 + i for i in range(len(places))]
            for name, shift in zip(SERIES, (-0.22, 0.0, 0.22), strict=True):
                found = [gain(runs, name, metric, task, *place) for place in places]
                _series(axis, name, found, [top + 1 + i + shift for i in range(len(places))])
        axis.axvline(0, color="#000000", linewidth=0.8)
        axis.set_yticks(rows, [f"{depth}, {STARTS[start]}" for depth, start in places] * len(TASKS), fontsize=8)
        axis.set(title=how, xlabel="minus Std without norm, points", ylim=(rows[-1] + 0.6, -0.6))
        axis.grid(False, axis="y")
    made.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=1, fontsize=8)
    return made


def gain(runs: Sequence[Run], name: str, metric: str, task: str, depth: int, start: str) -> Estimate | None:
    """Of a series over Std without norm, in points, seed by seed; None where it was not run."""
    variant, fields, _ = SERIES[name]
    ours, std = (
        {
            run.seed: 100 * run.metrics[metric]
            for run in runs
            if run.variant == one and has(run.config, {"task": task, "depth": depth, "start": start, **where})
        }
        for one, where in ((variant, fields), ("Std", {"norm": "none"}))
    )
    return estimate(gains(ours, std, higher=True)) if ours else None


def _series(axis: Axes, name: str, found: Sequence[Estimate | None], rows: Sequence[float]) -> None:
    """One point for each row that was run."""
    points = [(y, one) for y, one in zip(rows, found, strict=True) if one is not None]
    ends = [one.interval() or (one.mean, one.mean) for _, one in points]
    spread = [[abs(end[side] - one.mean) for end, (_, one) in zip(ends, points, strict=True)] for side in (0, 1)]
    named = name not in axis.get_legend_handles_labels()[1]
    axis.errorbar([one.mean for _, one in points], [y for y, _ in points], xerr=spread, linestyle="", capsize=1.5,
                  label=name if named else None, markersize=4, **look(SERIES[name][2]))  # fmt: skip


if __name__ == "__main__":
    write_figure(__doc__, Path("results/few-labels-losses"), Path("docs/images/when.svg"), figure)

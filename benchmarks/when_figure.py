"""The figure of README.md and docs/when.md: what RR gains over Std, by task, labels and norm.

python -m benchmarks.when_figure [--results results/few-labels] [--figure docs/images/when.svg]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.pages import write_figure
from benchmarks.when import LABELS, OURS, TASKS, Found, dead, gain, read
from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar.lab.report.run_figures import LOST

WAYS = {"probe": "linear probe", "tune": "fine-tuned"}
NORMS = {"none": ("without norm", "RR"), "batch": ("with batch norm", "Std")}
"""What is written for each, and in whose colour."""
REACH = (-11.0, 6.0)
"""Points that the figure shows."""


@styled
def figure(folder: Path) -> Figure:
    """RR minus Std with 95 % intervals: a panel for each way, a row for each task and number of labels. Nets that died
    are left out, and counted on the picture."""
    made, axes = new_figure(len(WAYS), 1, (WIDTH, 3.9 * len(WAYS)))
    for (axis,), (way, how) in zip(axes, WAYS.items(), strict=True):
        for at, (task, title) in enumerate(TASKS.items()):
            top = (len(LABELS) + 1) * at
            axis.text(REACH[0], top, title, va="center", fontweight="bold", fontsize=8)
            for norm, shift in zip(NORMS, (-0.15, 0.15), strict=True):
                found = read(folder, norm, task)
                _series(axis, found, way, norm, [top + 1 + i + shift for i in range(len(LABELS))])
                if lost := len(dead(found[OURS])):
                    text = f"✕ {lost} of {len(found[OURS])} {NORMS[norm][0]} died"
                    axis.text(REACH[1], top, text, ha="right", va="center", fontsize=SMALL, color=LOST)
        rows = [(len(LABELS) + 1) * at + 1 + i for at in range(len(TASKS)) for i in range(len(LABELS))]
        axis.axvline(0, color="#000000", linewidth=0.8)
        axis.set_yticks(rows, [f"{n} labels" for n in LABELS] * len(TASKS), fontsize=8)
        axis.set(title=how, xlabel="RR − Std, points", xlim=REACH, ylim=(rows[-1] + 0.6, -0.6))
        axis.grid(False, axis="y")
    made.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=8)
    return made


def _series(axis: Axes, found: Found, way: str, norm: str, rows: Sequence[float]) -> None:
    """Of one norm, one point for each number of labels."""
    label, colour = NORMS[norm]
    points = [(y, one) for y, n in zip(rows, LABELS, strict=True) if (one := gain(found, f"{way}_{n}", alive=True))]
    ends = [one.interval() or (one.mean, one.mean) for _, one in points]
    spread = [[abs(end[side] - one.mean) for end, (_, one) in zip(ends, points, strict=True)] for side in (0, 1)]
    named = label not in axis.get_legend_handles_labels()[1]
    axis.errorbar([one.mean for _, one in points], [y for y, _ in points], xerr=spread, linestyle="", capsize=2,
                  label=label if named else None, markersize=5, **look(colour))  # fmt: skip


if __name__ == "__main__":
    write_figure(__doc__, Path("results/few-labels"), Path("docs/images/when.svg"), figure)

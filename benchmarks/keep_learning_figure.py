"""The figure of docs/keep-learning.md: accuracy while learning over the tasks of ``benchmarks.keep_learning_digits``.

python -m benchmarks.keep_learning_figure [--results results] [--figure docs/images/keep-learning.svg]
"""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure

from benchmarks.keep_learning_digits import JUDGED, NETS
from benchmarks.keep_learning_page import read, with_seeds
from benchmarks.pages import write_figure
from racecar.inspect.style import WIDTH, look, new_figure, styled

SERIES = {
    "keep_learning": ("keep_learning", "RR"),
    "orthogonality": ("soft orthogonality", "Ort"),
    "plain": ("plain", "Std"),
}
"""Method → its name in the legend, and the variant of the paper's experiments whose colour and marker it has."""


@styled
def figure(results: Path) -> Figure:
    """The figure: a panel for each net with a line for each method, the mean accuracy over the judged seeds, and a band
    from the lowest to the highest of them."""
    records = {(record["net"], record["method"]): record for record in with_seeds(read(results), JUDGED)}
    nets = [net for net in NETS if {(net, "plain"), (net, "keep_learning")} <= records.keys()]
    panels, axes = new_figure(len(nets), 1, (WIDTH, 2.2 * len(nets) + 0.6))
    for (axis,), net in zip(axes, nets, strict=True):
        for method, (name, variant) in SERIES.items():
            if (net, method) not in records:
                continue
            (by_seed,) = records[net, method]["learned"]
            by_task = [[100 * accuracy for accuracy in task] for task in zip(*by_seed, strict=True)]
            tasks, style = range(1, len(by_task) + 1), look(variant)
            axis.plot(tasks, list(map(mean, by_task)), markersize=4, linewidth=1, label=name, **style)
            low, high = (list(map(end, by_task)) for end in (min, max))
            axis.fill_between(tasks, low, high, color=style["color"], alpha=0.15, linewidth=0)
        axis.axhline(10, color="#666666", linewidth=0.8, linestyle="--")
        axis.set(title=net, ylabel="accuracy while learning, %", ylim=(0, 100))
        axis.locator_params(axis="x", integer=True)
    axes[-1][0].set_xlabel("task")
    panels.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=1, fontsize=8)
    return panels


if __name__ == "__main__":
    write_figure(__doc__, Path("results"), Path("docs/images/keep-learning.svg"), figure)

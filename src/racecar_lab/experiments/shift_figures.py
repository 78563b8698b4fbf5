"""The figure of shift: how well every score of every variant detects each shift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import mean
from typing import TYPE_CHECKING, Any

from racecar.inspect.style import WIDTH, look, new_figure, styled
from racecar_lab.experiments.paper_figures import chosen, look_of
from racecar_lab.experiments.shift_scores import SHIFTS
from racecar_lab.report.groups import by_setting, by_variant
from racecar_lab.report.statistics import estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

SCORES = {
    "layerwise": "reverse error,\nlayer-wise",
    "reverse": "reverse error,\nfull",
    "input": "reverse error,\nat the input",
    "softmax": "maximum\nsoftmax",
    "energy": "energy",
    "mahalanobis": "Mahalanobis",
    "autoencoder": "autoencoder,\nsquared error",
    "autoencoder_relative": "autoencoder,\nrelative error",
}
"""Name of a score → its label in the figure, from top to bottom."""
ROW, EDGE = 0.36, 0.5
"""Height in inches of a score's row, and of the margin around a panel."""
SPREAD = 0.6
"""Share of a row's height over which the variants in it are spread."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure of the AUROCs, one for each setting."""
    title = (
        "How well a score tells a shift: mean AUROC, 95 % interval (0.5: chance; below: known pictures score higher)"
    )
    settings = by_setting(chosen(runs))
    return {f"{title}{setting}": auroc_figure(members) for setting, members in settings.items() if values(members)}


def values(runs: Sequence[Run]) -> dict[str, dict[tuple[str, str], list[float]]]:
    """Variant → (shift, score) → the AUROC of every seed, with which the score tells shifted pictures from known ones.
    The autoencoder counts as a variant."""
    nets = by_variant([run for run in runs if run.stage == "A"])
    if autoencoders := [run for run in runs if run.stage == "AE"]:
        nets["autoencoder"] = autoencoders
    table: dict[str, dict[tuple[str, str], list[float]]] = {name: {} for name in nets}
    for name, (shift, score) in product(nets, product(SHIFTS, SCORES)):
        aurocs = [run.metrics.get(f"auroc_{shift}_{score}") for run in nets[name]]
        if known := [auroc for auroc in aurocs if auroc is not None]:
            table[name][shift, score] = known
    return {name: cells for name, cells in table.items() if cells}


@styled
def auroc_figure(runs: Sequence[Run]) -> Figure:
    """Draw the AUROC with which scores detect shifts: a panel for each shift, a row for each score, a colour and a
    marker for each variant."""
    table = values(runs)
    shown = [score for score in SCORES if any((shift, score) in cells for cells in table.values() for shift in SHIFTS)]
    least = min(auroc for cells in table.values() for aurocs in cells.values() for auroc in aurocs)
    figure, axes = new_figure(len(SHIFTS), 1, (WIDTH, len(SHIFTS) * (EDGE + ROW * len(shown)) + EDGE))
    for (axis,), (shift, title) in zip(axes, SHIFTS.items(), strict=True):
        for i, score in enumerate(shown):
            _row(axis, i, {name: cells.get((shift, score), []) for name, cells in table.items()})
        axis.axvline(0.5, color="#777777", linewidth=0.8, linestyle="--")
        axis.set(title=title, xlim=(min(0.4, least) - 0.02, 1.02), ylim=(len(shown) - 0.5, -0.5))
        axis.set_yticks(range(len(shown)), [SCORES[score] for score in shown])
    axes[-1][0].set_xlabel("AUROC")
    handles: dict[Any, Any] = {}
    for (axis,) in axes:
        handles |= {name: line for line, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)
    figure.set_label(_best_scores(table))
    return figure


def _best_scores(table: Mapping[str, Mapping[tuple[str, str], Sequence[float]]]) -> str:
    """The figure in words: for every shift the score with the highest mean AUROC of each variant."""
    parts = []
    for shift in SHIFTS:
        best = []
        for name, cells in table.items():
            labels = {score: label.replace("\n", " ") for score, label in SCORES.items() if (shift, score) in cells}
            if labels:
                value, label = max((mean(cells[shift, score]), label) for score, label in labels.items())
                best.append(f"{name} {value:.2f} by {label}")
        parts.append(f"{shift}: {', '.join(best)}")
    return f"best mean AUROC for {'; '.join(parts)}"


def _row(axis: Axes, i: int, nets: Mapping[str, Sequence[float]]) -> None:
    """Draw the AUROC of one score in row ``i``: mean and 95 % interval of every variant that has it, one below the
    other."""
    estimates = {name: result for name, aurocs in nets.items() if (result := estimate(list(aurocs))) is not None}
    for j, (name, result) in enumerate(estimates.items()):
        y = i + SPREAD * ((j + 0.5) / len(estimates) - 0.5)
        style = look(name) if name == "autoencoder" else look_of(name, nets)
        ends = result.interval() or (result.mean, result.mean)
        axis.plot(ends, [y, y], color=style["color"], linewidth=1.4)
        axis.plot([result.mean], [y], label=name, markersize=6, **{**style, "linestyle": "none"})

"""The figure of shift: how well every score tells, of every variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
"""From above, as they are written."""
ROW, EDGE = 0.36, 0.5
"""Inches: of a score; of what is around a panel."""
SPREAD = 0.6
"""Of a row, that its variants share."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """By title, one for each setting."""
    told = "How well a score tells a shift: mean AUROC, 95 % interval (0.5: chance; below: known pictures score higher)"
    return {f"{told}{where}": auroc_figure(some) for where, some in by_setting(chosen(runs)).items() if values(some)}


def values(runs: Sequence[Run]) -> dict[str, dict[tuple[str, str], list[float]]]:
    """Whose net → shift and score → AUROC of every seed. The autoencoder is a net of its own."""
    nets = by_variant([run for run in runs if run.stage == "A"])
    nets |= {"autoencoder": own} if (own := [run for run in runs if run.stage == "AE"]) else {}
    found = {
        name: {
            (shift, score): some
            for shift in SHIFTS
            for score in SCORES
            if (some := [value for run in own if (value := run.metrics.get(f"auroc_{shift}_{score}")) is not None])
        }
        for name, own in nets.items()
    }
    return {name: cells for name, cells in found.items() if cells}


@styled
def auroc_figure(runs: Sequence[Run]) -> Figure:
    """A panel for each shift, a row for each score, a colour and a marker for each variant."""
    found = values(runs)
    shown = [score for score in SCORES if any(score == one for cells in found.values() for _, one in cells)]
    least = min(value for cells in found.values() for some in cells.values() for value in some)
    figure, axes = new_figure(len(SHIFTS), 1, (WIDTH, len(SHIFTS) * (EDGE + ROW * len(shown)) + EDGE))
    for (axis,), (shift, title) in zip(axes, SHIFTS.items(), strict=True):
        for i, score in enumerate(shown):
            _row(axis, i, {name: cells.get((shift, score), []) for name, cells in found.items()})
        axis.axvline(0.5, color="#777777", linewidth=0.8, linestyle="--")
        axis.set(title=title, xlim=(min(0.4, least) - 0.02, 1.02), ylim=(len(shown) - 0.5, -0.5))
        axis.set_yticks(range(len(shown)), [SCORES[score] for score in shown])
    axes[-1][0].set_xlabel("AUROC")
    handles: dict[Any, Any] = {}
    for (axis,) in axes:
        handles |= {name: line for line, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=3)
    figure.set_label(_told(found))
    return figure


def _told(found: Mapping[str, Mapping[tuple[str, str], Sequence[float]]]) -> str:
    """The best score of every net for every shift."""
    said = []
    for shift in SHIFTS:
        best = {
            name: max(
                (mean(some), SCORES[score].replace("\n", " ")) for (one, score), some in cells.items() if one == shift
            )
            for name, cells in found.items()
            if any(one == shift for one, _ in cells)
        }
        said.append(f"{shift}: " + ", ".join(f"{name} {value:.2f} by {score}" for name, (value, score) in best.items()))
    return f"best mean AUROC for {'; '.join(said)}"


def _row(axis: Axes, i: int, nets: Mapping[str, Sequence[float]]) -> None:
    """One score of all nets that have it, one below the other."""
    some = {name: found for name, own in nets.items() if (found := estimate(list(own))) is not None}
    for j, (name, found) in enumerate(some.items()):
        y = i + SPREAD * ((j + 0.5) / len(some) - 0.5)
        style = look(name) if name == "autoencoder" else look_of(name, nets)
        ends = found.interval() or (found.mean, found.mean)
        axis.plot(ends, [y, y], color=style["color"], linewidth=1.4)
        axis.plot([found.mean], [y], label=name, markersize=6, **{**style, "linestyle": "none"})

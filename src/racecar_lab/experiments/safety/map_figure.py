"""The safety map as two heat maps: the gain of every loss at every λ, and the share of nets that it kills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from racecar.inspect.style import SMALL, WIDTH, ink_on, new_figure, styled
from racecar.support.extras import need
from racecar_lab.experiments.safety.design import LAMBDAS, LOSSES, SUMMED, Setting, name_of
from racecar_lab.experiments.safety.rule import Verdict
from racecar_lab.report.groups import collect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LIMIT = 10.0
"""Gain in points at which the colours of the heat map end. Without a limit, dead nets would hide all other
differences."""


def all_figures(verdict: Verdict) -> dict[str, Figure]:
    """Title → figure: the heat map of gains and that of killed nets; empty if no setting was run."""
    cells, chosen = verdict.cells, verdict.chosen
    if not len(cells):
        return {}
    gain, killed = 100 * cells["gain", "mean"], 100 * cells["nets", "killed"] / cells["nets", "nets"]
    frame = "; the frame: what the rule chooses" if chosen is not None else ""
    return {
        f"Every loss at every λ: what the probe with 10 labels gains over plain twins that live, in points{frame}":
            map_figure(gain, "BrBG", chosen),
        f"Every loss at every λ: how many per cent of the nets it killed whose plain twins live{frame}":
            map_figure(killed, "Reds", chosen),
    }  # fmt: skip


@styled
def map_figure(values: Any, colours: str, chosen: Setting | None = None) -> Figure:
    """Draw a heat map with a panel for each kind of gradient, a row for each loss and a column for each λ.

    Args:
        values: a pandas series: setting → gain in points, or share of killed nets in per cent.
        colours: a colour map; for "BrBG", 0 is in the middle.
        chosen: the setting that gets a frame; None: no frame.
    """
    signed, values = colours == "BrBG", values.dropna()
    grid = values.unstack("place").reindex(columns=LAMBDAS)
    panels = collect((loss.split(":")[0], loss) for loss in LOSSES if loss in grid.index)
    heights = [0.45 + 0.2 * len(losses) for losses in panels.values()]
    figure, axes = new_figure(len(panels), 1, (WIDTH, 0.3 + sum(heights)), height_ratios=heights)
    size = min(LIMIT, values.abs().max()) or 1.0
    low, high = (-size, size) if signed else (0.0, 100.0)
    for (axis,), (gradient, losses) in zip(axes, panels.items(), strict=True):
        cells = grid.loc[losses].to_numpy()
        image = axis.imshow(cells, cmap=colours, vmin=low, vmax=high, aspect="auto")
        for i, j in zip(*(cells == cells).nonzero(), strict=True):  # NaN: nothing was run
            form = ".0f" if not signed else "+z.1f" if abs(cells[i, j]) < 9.95 else "+.0f"
            ink = ink_on(image.to_rgba(cells[i, j]))
            axis.text(
                j, i, f"{cells[i, j]:{form}}".replace("-", "−"), ha="center", va="center", fontsize=SMALL, color=ink
            )
        axis.set_xticks(range(len(LAMBDAS)), [f"{place:g}".lstrip("0") for place in LAMBDAS], fontsize=SMALL)
        names = [loss.partition(":")[2].replace(":", " · ") for loss in losses]
        axis.set_yticks(range(len(losses)), names, fontsize=SMALL)
        axis.set_title(f"gradient {gradient}", loc="left")
        axis.grid(False)
        if chosen is not None and chosen[0] in losses:
            corner = LAMBDAS.index(chosen[1]) - 0.5, losses.index(chosen[0]) - 0.5
            frame = need("matplotlib.patches", "inspect").Rectangle
            axis.add_patch(frame(corner, 1, 1, fill=False, edgecolor="#D1006C", linewidth=2.2, clip_on=False))
    summed = any(":sum:" in loss for loss in grid.index)
    axes[-1][0].set_xlabel(f"λ (scale sum: divided by {SUMMED:,.0f})" if summed else "λ")
    figure.set_label(_described(values, chosen))
    return figure


def _described(values: Any, chosen: Setting | None) -> str:
    """The heat map in words: its smallest and its largest value, and the value of the chosen setting."""
    ends = " to ".join(f"{values[end]:.1f} for {name_of(end)}" for end in (values.idxmin(), values.idxmax()))
    text = f"{len(values)} cells, from {ends}"
    if chosen is None or chosen not in values.index:
        return text
    return f"{text}; {values[chosen]:.1f} for the chosen {name_of(chosen)}"

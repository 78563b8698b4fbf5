"""The safety map as a figure: what every loss gains at every λ, and which share of nets it kills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from racecar.inspect.style import SMALL, WIDTH, ink_on, new_figure, styled
from racecar_lab.experiments.safety.design import LAMBDAS, LOSSES, SUMMED, Loss, Setting
from racecar_lab.experiments.safety.rule import MapCell, judge
from racecar_lab.experiments.safety.told import rows_of
from racecar_lab.report.groups import collect

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from racecar_lab.running.run import Run

LIMIT = 10.0
"""Points at which the colours of the gain end, or nets that died would hide all other differences."""


@dataclass(frozen=True)
class Shown:
    """What a map shows of each cell."""

    title: str
    value: Callable[[MapCell], float | None]
    colours: str
    signed: bool
    """Whether 0 is in the middle of the colours."""


MAPS = (
    Shown("what the probe with 10 labels gains over plain twins that live, in points",
          lambda cell: None if cell.gain is None else 100 * cell.gain, "BrBG", True),
    Shown("how many per cent of the nets it killed whose plain twins live",
          lambda cell: 100 * cell.share if cell.nets else None, "Reds", False),
)  # fmt: skip


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """By title."""
    verdict = judge(rows_of(runs).rows)
    if not verdict.cells:
        return {}
    chosen = "; the frame: what the rule chooses" if verdict.chosen is not None else ""
    return {
        f"Every loss at every λ: {one.title}{chosen}": map_figure(verdict.cells, one, verdict.chosen) for one in MAPS
    }


@styled
def map_figure(cells: Mapping[Setting, MapCell], what: Shown, chosen: Setting | None = None) -> Figure:
    """A panel for each reach of the gradient; rows: losses; columns: λ."""
    values = {one: value for one, cell in cells.items() if (value := what.value(cell)) is not None}
    panels = collect((loss.gradient, loss) for loss in LOSSES if any(one.loss == loss for one in cells))
    heights = [0.45 + 0.2 * len(losses) for losses in panels.values()]
    figure, axes = new_figure(len(panels), 1, (WIDTH, 0.3 + sum(heights)), height_ratios=heights)
    size = min(LIMIT, max(map(abs, values.values()), default=0.0)) or 1.0
    low, high = (-size, size) if what.signed else (0.0, 100.0)
    for (axis,), (gradient, losses) in zip(axes, panels.items(), strict=True):
        grid = [[values.get(Setting(loss, place), float("nan")) for place in LAMBDAS] for loss in losses]
        image = axis.imshow(grid, cmap=what.colours, vmin=low, vmax=high, aspect="auto")
        _numbers(image, grid, what.signed)
        axis.set_xticks(range(len(LAMBDAS)), [f"{place:g}".lstrip("0") for place in LAMBDAS], fontsize=SMALL)
        axis.set_yticks(range(len(losses)), [_name(loss) for loss in losses], fontsize=SMALL)
        axis.set_title(f"gradient {gradient}", loc="left")
        axis.grid(False)
        if chosen is not None and chosen.loss in losses:
            _frame(axis, (LAMBDAS.index(chosen.place) - 0.5, losses.index(chosen.loss) - 0.5))
    axes[-1][0].set_xlabel(_label([loss for losses in panels.values() for loss in losses]))
    figure.set_label(_told(values, chosen))
    return figure


def _name(loss: Loss) -> str:
    """Within its gradient."""
    return str(loss).partition(" · ")[2]


def _told(values: Mapping[Setting, float], chosen: Setting | None) -> str:
    if not values:
        return ""
    least, most = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    said = [f"{values[least]:.1f} for {least}", f"{values[most]:.1f} for {most}"]
    text = f"{len(values)} cells, from {' to '.join(said)}"
    return text + (f"; {values[chosen]:.1f} for the chosen {chosen}" if chosen is not None and chosen in values else "")


def _label(losses: Sequence[Loss]) -> str:
    return f"λ (scale sum: divided by {SUMMED:,.0f})" if any(loss.scale == "sum" for loss in losses) else "λ"


def _numbers(image: AxesImage, values: Sequence[Sequence[float]], signed: bool) -> None:
    """What each cell is; nothing where nothing was run."""
    for i, line in enumerate(values):
        for j, value in enumerate(line):
            if value == value:
                form = ".0f" if not signed else "+z.1f" if abs(value) < 9.95 else "+.0f"
                text, colour = format(value, form).replace("-", "−"), ink_on(image.to_rgba(np.array(value)))
                image.axes.text(j, i, text, ha="center", va="center", fontsize=SMALL, color=colour)


def _frame(axis: Axes, corner: tuple[float, float]) -> None:
    from racecar.support.extras import need

    patches = need("matplotlib.patches", "inspect")
    axis.add_patch(patches.Rectangle(corner, 1, 1, fill=False, edgecolor="#D1006C", linewidth=2.2, clip_on=False))

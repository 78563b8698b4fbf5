"""The safety map as a figure: what every loss gains at every λ, and which share of nets it kills."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from racecar.inspect.style import new_figure, styled
from racecar.lab.experiments.safety.design import LAMBDAS, LOSSES, SUMMED, Loss, Setting
from racecar.lab.experiments.safety.rule import MapCell, judge
from racecar.lab.experiments.safety.told import rows_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar.lab.running.run import Run

LIMIT = 10.0
"""Points at which the colours of the gain end, or nets that died would hide all other differences."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """By title."""
    verdict = judge(rows_of(runs).rows)
    if not verdict.cells:
        return {}
    title = "Every loss at every λ: what the probe gains over plain twins that live, and how many of them it killed"
    chosen = "; the frame: what the rule chooses" if verdict.chosen is not None else ""
    return {f"{title}{chosen}": map_figure(verdict.cells, verdict.chosen)}


@styled
def map_figure(cells: Mapping[Setting, MapCell], chosen: Setting | None = None) -> Figure:
    """Rows: losses; columns: λ. Left the gain of the probe in points, right the share of killed nets in percent."""
    losses = [loss for loss in LOSSES if any(one.loss == loss for one in cells)]
    gains = [[_gain(cells.get(Setting(loss, place))) for place in LAMBDAS] for loss in losses]
    shares = [[_share(cells.get(Setting(loss, place))) for place in LAMBDAS] for loss in losses]
    figure, ((left, right),) = new_figure(1, 2, (10.5, 1.6 + 0.24 * len(losses)))
    size = min(LIMIT, max((abs(one) for line in gains for one in line if one == one), default=0.0)) or 1.0
    for axis, values, colours, low, high, form, title in (
        (left, gains, "BrBG", -size, size, "+z.1f", "gain of the probe, 10 labels: points"),
        (right, shares, "Reds", 0.0, 100.0, ".0f", "killed, though the plain twin lives: %"),
    ):
        image = axis.imshow(values, cmap=colours, vmin=low, vmax=high, aspect="auto")
        _numbers(axis, values, form, low, high)
        axis.set_xticks(range(len(LAMBDAS)), [f"{place:g}" for place in LAMBDAS], fontsize=7)
        axis.set_yticks(range(len(losses)), [str(loss) for loss in losses] if axis is left else [], fontsize=6.5)
        axis.set(title=title, xlabel="λ" if axis is right else _label(losses))
        axis.grid(False)
        figure.colorbar(image, ax=axis, extend="both" if axis is left else "neither")
        if chosen is not None:
            where = LAMBDAS.index(chosen.place) - 0.5, losses.index(chosen.loss) - 0.5
            _frame(axis, where)
    return figure


def _label(losses: Sequence[Loss]) -> str:
    return f"λ (scale sum: divided by {SUMMED:,.0f})" if any(loss.scale == "sum" for loss in losses) else "λ"


def _gain(cell: MapCell | None) -> float:
    return float("nan") if cell is None or cell.gain is None else 100 * cell.gain


def _share(cell: MapCell | None) -> float:
    return float("nan") if cell is None or not cell.nets else 100 * cell.share


def _numbers(axis: Axes, values: Sequence[Sequence[float]], form: str, low: float, high: float) -> None:
    """What each cell is; nothing where nothing was run."""
    for i, line in enumerate(values):
        for j, value in enumerate(line):
            if value == value:
                strong = abs(value - (low + high) / 2) > 0.3 * (high - low) if low < 0 else value > 0.6 * high
                text = format(value, form).replace("-", "−")
                axis.text(j, i, text, ha="center", va="center", fontsize=6, color="white" if strong else "black")


def _frame(axis: Axes, corner: tuple[float, float]) -> None:
    from racecar.support.extras import need

    patches = need("matplotlib.patches", "inspect")
    axis.add_patch(patches.Rectangle(corner, 1, 1, fill=False, edgecolor="#D1006C", linewidth=2.2, clip_on=False))

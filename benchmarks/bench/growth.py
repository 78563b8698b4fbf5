"""Growth of the cost with depth, width and batch: nets of one kind, and a line through their step times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from racecar.inspect.style import look, new_figure, styled
from racecar_lab.networks.dense import dense
from racecar_lab.networks.vgg import vgg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILIES = {"linear": (128, 128), "conv": (16, 32)}
"""Usual width and batch of each kind of net."""
SIDE, DEPTH, CLASSES = 8, 30, 10
GROWS = ("depth", "width", "batch")


@dataclass(frozen=True)
class Size:
    """One net of a family, as its name says: ``linear depth=30 width=128 batch=128``."""

    family: str
    depth: int
    width: int
    batch: int

    def __str__(self) -> str:
        return f"{self.family} depth={self.depth} width={self.width} batch={self.batch}"


def read_size(name: str) -> Size:
    family, *settings = name.split()
    return Size(family, **{key: int(value) for key, value in (setting.split("=") for setting in settings)})


def names(grow: str, values: Iterable[int]) -> list[str]:
    """Names of nets that differ in "depth", "width" or "batch" alone."""
    return [
        str(Size(family, **{"depth": DEPTH, "width": width, "batch": batch, grow: value}))
        for family, (width, batch) in FAMILIES.items()
        for value in values
    ]


def open_size(name: str) -> tuple[nn.Module, Tensor]:
    """Build the net of this name: layers of one width with batch norm and ReLU, and a linear one for the classes."""
    size = read_size(name)
    torch.manual_seed(0)
    if size.family == "linear":
        model: nn.Module = dense([size.width] * (size.depth + 1) + [CLASSES], nn.ReLU, norm=True)
        return model, torch.randn(size.batch, size.width)
    return vgg((size.width,) * size.depth, classes=CLASSES, size=SIDE), torch.randn(size.batch, 3, SIDE, SIDE)


@dataclass(frozen=True)
class Line:
    """Step times of one kind of step in one family: milliseconds ≈ start + slope · value (width: value²)."""

    family: str
    step: str
    power: int
    values: list[int]
    ms: list[float]

    @property
    def fit(self) -> tuple[float, float]:
        """(start, slope), by least squares of the relative errors, so that small nets count as much as large ones."""
        x, y = np.array(self.values, dtype=float) ** self.power, np.array(self.ms)
        slope, start = np.polyfit(x, y, 1, w=1 / y)
        return float(start), float(slope)

    def at(self, value: float) -> float:
        """Milliseconds on the line."""
        start, slope = self.fit
        return start + slope * value**self.power

    @property
    def worst(self) -> float:
        """Largest relative distance of a point from the line."""
        return max(abs(self.at(x) / y - 1) for x, y in zip(self.values, self.ms, strict=True))


def lines(models: Sequence[Mapping[str, Any]], grow: str) -> list[Line]:
    """The lines in a record's models."""
    by_step: dict[tuple[str, str], Line] = {}
    power = 2 if grow == "width" else 1  # a layer of w channels has w² weights
    for model in models:
        size = read_size(model["model"])
        for step in model.get("steps", ()):
            if "median_ms" in step:
                line = by_step.setdefault((size.family, step["step"]), Line(size.family, step["step"], power, [], []))
                line.values.append(getattr(size, grow))
                line.ms.append(step["median_ms"])
    return list(by_step.values())


def rows(models: Sequence[Mapping[str, Any]], grow: str) -> list[list[str]]:
    """For each line its slope, that slope over the plain one, and how straight it is."""
    all_lines = lines(models, grow)
    plain = {line.family: line.fit[1] for line in all_lines if line.step == "plain" and len(line.values) > 1}
    table = []
    for line in all_lines:
        if len(line.values) > 1:
            slope = line.fit[1]
            ratio = slope / plain[line.family] if line.family in plain else float("nan")
            table.append([line.family, line.step, f"{slope:.4f}", f"{ratio:.3f}", f"{100 * line.worst:.0f} %"])
    return table


def head(grow: str) -> list[str]:
    unit = {"depth": "layer", "width": "channel²", "batch": "sample"}[grow]
    return ["net", "step", f"ms per {unit}", "slope ratio", "worst distance"]


@styled
def figure(models: Sequence[Mapping[str, Any]], grow: str) -> Figure:
    """Step times over depth, width or batch, a panel for each family, with the fitted lines."""
    all_lines = lines(models, grow)
    families = list(dict.fromkeys(line.family for line in all_lines))
    drawn, axes = new_figure(1, len(families), (3.4 * len(families), 2.8))
    variants = {"plain": "Std", "racecar 1": "RR"}
    for axis, family in zip(axes[0], families, strict=True):
        for i, line in enumerate(line for line in all_lines if line.family == family):
            style = look(variants.get(line.step, line.step), i)
            axis.plot(line.values, line.ms, linestyle="none", label=line.step, **style)
            if len(line.values) > 1:
                low, high = min(line.values), max(line.values)
                along = [low * (high / low) ** (i / 50) for i in range(51)]
                axis.plot(along, [line.at(x) for x in along], color=style["color"], linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel=grow, ylabel="ms per step", title=family)
        axis.legend(fontsize=8)
    return drawn

"""Growth of the cost with depth: nets that differ in their number of layers alone, and a line through the times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from racecar.inspect.style import look, new_figure, styled
from racecar_lab.networks.dense import dense
from racecar_lab.networks.vgg import vgg
from racecar_lab.report.groups import collect

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAMILIES = {"linear": (128, 128), "conv": (16, 32)}
"""Width and batch of each kind of net."""
SIDE, CLASSES = 8, 10
HEAD = ("net", "step", "ms per layer", "slope ratio", "worst distance")


def names(depths: Iterable[int]) -> list[str]:
    """Names of the nets with so many layers, such as "linear depth=30 width=128 batch=128"."""
    ends = {family: f"width={width} batch={batch}" for family, (width, batch) in FAMILIES.items()}
    return [f"{family} depth={depth} {end}" for family, end in ends.items() for depth in depths]


def read_name(name: str) -> tuple[str, int]:
    """Family and depth of a net."""
    match = re.match(r"(\w+) depth=(\d+)", name)
    assert match is not None, f"{name} is the name of no such net"
    return match[1], int(match[2])


def open_net(name: str) -> tuple[nn.Module, Tensor]:
    """Build the net of this name: layers of one width with batch norm and ReLU, and a linear one for the classes."""
    family, depth = read_name(name)
    width, batch = FAMILIES[family]
    torch.manual_seed(0)
    if family == "linear":
        model: nn.Module = dense([width] * (depth + 1) + [CLASSES], nn.ReLU, norm=True)
        return model, torch.randn(batch, width)
    return vgg((width,) * depth, classes=CLASSES, size=SIDE), torch.randn(batch, 3, SIDE, SIDE)


class Line(NamedTuple):
    """Step times of one kind of step in one family, and the line through them."""

    depths: Any
    """An array."""
    ms: Any
    """Milliseconds of a step, an array."""
    curve: np.poly1d
    """Milliseconds ≈ curve[0] + curve[1] · depth."""

    @property
    def worst(self) -> float:
        """Largest relative distance of a point from the line."""
        return float(abs(self.curve(self.depths) / self.ms - 1).max())


def lines(models: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Line]:
    """Family and step → the line, for all that a record has in two depths at least. Fitted by least squares of the
    relative errors, so that small nets count as much as large ones."""
    points = collect(
        ((family, step["step"]), (depth, step["median_ms"]))
        for (family, depth), model in ((read_name(model["model"]), model) for model in models)
        for step in model.get("steps", ())
        if "median_ms" in step
    )
    arrays = {key: np.array(pairs, dtype=float).T for key, pairs in points.items() if len(pairs) > 1}
    return {key: Line(x, ms, np.poly1d(np.polyfit(x, ms, 1, w=1 / ms))) for key, (x, ms) in arrays.items()}


def rows(models: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """For each line its slope, that slope over the plain one, and how straight it is."""
    fitted, table = lines(models), []
    for (family, step), line in fitted.items():
        plain = fitted.get((family, "plain"))
        ratio = line.curve[1] / plain.curve[1] if plain else float("nan")
        table.append([family, step, f"{line.curve[1]:.4f}", f"{ratio:.3f}", f"{100 * line.worst:.0f} %"])
    return table


@styled
def figure(models: Sequence[Mapping[str, Any]]) -> Figure:
    """Step times over the depth, a panel for each family, with the fitted lines."""
    by_family = collect((family, (step, line)) for (family, step), line in lines(models).items())
    drawn, axes = new_figure(1, len(by_family), (3.4 * len(by_family), 2.8))
    variants = {"plain": "Std", "racecar 1": "RR"}
    for axis, (family, of_steps) in zip(axes[0], by_family.items(), strict=True):
        for i, (step, line) in enumerate(of_steps):
            style = look(variants.get(step, step), i)
            axis.plot(line.depths, line.ms, linestyle="none", label=step, **style)
            along = np.geomspace(line.depths.min(), line.depths.max(), 51)
            axis.plot(along, line.curve(along), color=style["color"], linewidth=1)
        axis.set(xscale="log", yscale="log", xlabel="depth", ylabel="ms per step", title=family)
        axis.legend(fontsize=8)
    return drawn

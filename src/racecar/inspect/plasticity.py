"""Measures of a net's plasticity, its ability to learn, for each layer, compared with the start of training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.inspect.activations import after
from racecar.inspect.invertibility import finite, number
from racecar.inspect.unwrap import unwrapped
from racecar.plan.layer import Layer
from racecar.racecar import call_arguments
from racecar.reverse.forward_pass import ForwardPass
from racecar.support.eval_mode import eval_mode
from racecar.support.table import table
from racecar.watch.batches import ExampleInputs
from racecar.watch.names import shown

DORMANT = 0.01
"""A unit is dead if its mean |activation| is at most this share of the mean over its layer."""
LEAST = 1e-6
"""Singular values of the data below this share of the largest are treated as 0."""
QUANTILES = (0.1, 0.5, 0.9)
"""Quantiles of the gain, weighted by the data's energy, that are reported as low, middle and high."""
Quantiles = tuple[float | None, float | None, float | None]
MORE_DEAD, LESS_RANK, DRIFT = 0.1, 0.5, 2.0
"""Thresholds from which a layer shows a sign of lost plasticity: its share of dead units has grown by ``MORE_DEAD``,
its effective rank is below ``LESS_RANK`` times that at the start, or a gain is ``DRIFT`` times farther from 1."""


@dataclass(frozen=True)
class LayerPlasticity:
    """Measures of one layer's plasticity.

    The layer's units are the features of its output, or the channels of a convolution, after norm and activation. A is
    its linear map without bias, h its input. The gain of a principal direction v of the inputs is ‖A v‖: 1 keeps
    lengths.
    """

    layer: str
    """Qualified name of the layer."""
    kind: str
    """Kind of the layer's operation, as "conv2d"."""
    units: int
    """Number of units."""
    dead: float
    """Share of dead units: those whose mean |activation|, over samples and positions, is at most 1 % of the layer's
    mean (dormant units, Sokar et al. 2023), as a ReLU that is never above 0."""
    rank: float
    """Effective rank of the units (Roy & Vetterli 2007): exp of the entropy of their singular values, from 1 to
    ``units``; 0 if all are 0."""
    low: float | None
    """Low gain: a tenth of the inputs' energy lies along directions of this gain or less. The gain of a direction is
    the factor by which the layer's linear map A changes the length of inputs along it. None where A is not known."""
    middle: float | None
    """Median gain: half of the inputs' energy lies along directions of this gain or less. None where A is not known."""
    high: float | None
    """High gain: nine tenths of the inputs' energy lie along directions of this gain or less. None where A is not
    known."""
    error: float | None
    """Reverse error ‖AᵀAh − h‖² / ‖h‖², which mode "linear" makes small. None if the layer has no rule."""

    def signs(self, start: LayerPlasticity) -> list[str]:
        """Signs of lost plasticity since ``start``: any of "dead units", "rank", "small gains", "large gains"."""
        signs = []
        if self.dead - start.dead >= MORE_DEAD:
            signs.append("dead units")
        if not self.rank >= LESS_RANK * start.rank:
            signs.append("rank")
        if self.low is not None and start.low is not None and DRIFT * self.low < min(1.0, start.low):
            signs.append("small gains")
        if self.high is not None and start.high is not None and self.high > DRIFT * max(1.0, start.high):
            signs.append("large gains")
        return signs


@dataclass(frozen=True, eq=False)
class Plasticity:
    """Measures of a net's plasticity, its ability to learn, for every layer. Iterable over layers; prints a table."""

    layers: tuple[LayerPlasticity, ...]
    """One entry for each layer, in the order in which the layers run."""
    start: Plasticity | None = None
    """The measures before training, to compare with; None: there are none."""

    def __iter__(self) -> Iterator[LayerPlasticity]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer: str) -> LayerPlasticity:
        return next(measures for measures in self if measures.layer == layer)

    @property
    def signs(self) -> dict[str, list[str]]:
        """Layer → its signs of lost plasticity since the start; layers without one are left out."""
        if self.start is None:
            return {}
        by_layer = {now.layer: now.signs(before) for now, before in zip(self, self.start, strict=True)}
        return {layer: signs for layer, signs in by_layer.items() if signs}

    @property
    def reading(self) -> str:
        """A sentence that says which layers show signs of lost plasticity. Signs are no proof: only training on a new
        task shows whether the net still learns."""
        if self.start is None:
            return "Nothing to compare with: give start=, what was found before training."
        if not self.signs:
            return f"No sign of lost plasticity since the start in any of {len(self)} layers."
        by_layer = "; ".join(f"{shown(layer)}: {', '.join(signs)}" for layer, signs in self.signs.items())
        return f"Signs of lost plasticity since the start in {len(self.signs)} of {len(self)} layers ({by_layer})."

    def __str__(self) -> str:
        head = ["layer", "kind", "dead units", "effective rank", "gain along the data", "reverse error"]
        starts = [None] * len(self) if self.start is None else self.start.layers
        rows = [_row(now, before) for now, before in zip(self, starts, strict=True)]
        note = "" if self.start is None else f"\nin brackets: at the start\n{self.reading}"
        return table(head, rows) + note

    def scalars(self) -> dict[str, float]:
        """All measures for a logger: "plasticity/dead/LAYER" → number, and so on for rank, low, middle, high, error."""
        names = ("dead", "rank", "low", "middle", "high", "error")
        values = {f"plasticity/{name}/{row.layer or 'network'}": getattr(row, name) for name in names for row in self}
        return {name: value for name, value in values.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """All measures and signs as a dict for JSON."""
        return {"layers": [finite(asdict(row)) for row in self], "signs": self.signs}


def plasticity(model: nn.Module, inputs: ExampleInputs, *, start: Plasticity | None = None) -> Plasticity:
    """Measure for every layer whether a net is losing its plasticity, the ability to learn something new.

        before = plasticity(model, x)
        …  # train
        print(plasticity(model, x, start=before))

    Args:
        model: any model that Racecar can plan, or a Racecar; in evaluation mode, and nothing in it is changed.
        inputs: as for ``Racecar``: a tensor (N, …), a tuple of arguments or a dict of keyword arguments. Use the same
            ones at all times, to compare; 64 samples or more, as a unit that none of them activates counts as dead.
        start: the result before training, to compare with.

    Returns:
        For every layer dead units, effective rank, gain along the data and reverse error.
    """
    model = unwrapped(model)
    with eval_mode(model), torch.no_grad():
        forward = ForwardPass(model, *call_arguments(inputs, model))
        linear = forward.by_itself()
        layers = tuple(_measure(forward, layer, linear.get(layer.index)) for layer in forward.layers)
    if start is not None and [row.layer for row in start] != [row.layer for row in layers]:
        raise ValueError("start is of another net: it has other layers")
    return Plasticity(layers, start)


def _measure(forward: ForwardPass, layer: Layer, linear: tuple[Tensor, Tensor, Tensor] | None) -> LayerPlasticity:
    """One layer's measures; ``linear`` is its input h, A h and AᵀA h, None if the layer has no rule."""
    value = forward.value(after(forward, layer))
    channels = layer.kind.startswith("conv") and value.dim() > 2
    units = (value.movedim(1, -1) if channels else value).double()
    units = units.reshape(-1, units.shape[-1])
    size = units.abs().mean(0)
    dead = float((size <= DORMANT * size.mean()).double().mean())
    gains: Quantiles = None, None, None
    error = None
    if linear is not None:
        h, a_h, ata_h = (tensor.double() for tensor in linear)
        error = float((ata_h - h).square().sum() / h.square().sum()) if bool(h.any()) else 0.0
        if layer.op.module is None:
            gains = _gains(h, a_h, by_position=forward.operation(layer).func is F.linear)
    return LayerPlasticity(layer.name, layer.kind, units.shape[1], dead, effective_rank(units), *gains, error)


def effective_rank(rows: Tensor) -> float:
    """Effective rank of a matrix (rows, n): exp of the entropy of its singular values divided by their sum (Roy &
    Vetterli 2007); NaN if the matrix is not finite."""
    if not bool(rows.isfinite().all()):
        return math.nan
    share = _thin(rows)[1]
    share = share / share.sum().clamp_min(torch.finfo(share.dtype).tiny)
    return float(torch.special.entr(share).sum().exp()) if bool(share.any()) else 0.0


def _gains(h: Tensor, a_h: Tensor, by_position: bool) -> Quantiles:
    """Quantiles of the gains ‖A v‖ over the principal directions v of h, weighted by the energy along each.

    Args:
        h: the layer's inputs, (N, …).
        a_h: A h, (N, …).
        by_position: whether A maps the last dimension at each position; if not, A maps whole samples.
    """
    x, y = (t.reshape(-1, t.shape[-1]) if by_position else t.reshape(len(t), -1) for t in (h, a_h))
    if not bool(x.isfinite().all() & y.isfinite().all()) or not bool(x.any()):
        return None, None, None
    left, values = _thin(x)
    gains, order = ((left.mT @ y).norm(dim=1) / values).sort()
    reached = values[order].square().cumsum(0)
    low, middle, high = (float(gains[reached >= share * reached[-1]][0]) for share in QUANTILES)
    return low, middle, high


def _thin(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Left singular vectors (rows, r) and singular values (r,) of a matrix (rows, n), without those that are rounding
    errors; computed from the smaller Gram matrix."""
    wide = rows.shape[0] <= rows.shape[1]
    squares, vectors = torch.linalg.eigh(rows @ rows.mT if wide else rows.mT @ rows)
    values = squares.clamp_min(0).sqrt()
    kept = values > LEAST * values[-1]
    vectors, values = vectors[:, kept], values[kept]
    return (vectors if wide else rows @ vectors / values), values


def _row(now: LayerPlasticity, start: LayerPlasticity | None) -> list[str]:
    def cell(text: Any) -> str:
        return text(now) if start is None else f"{text(now)} ({text(start)})"

    columns = (
        lambda a: f"{100 * a.dead:.0f} %",
        lambda a: f"{a.rank:.1f} of {a.units}",
        lambda a: "-" if a.low is None else f"{number(a.low)} | {number(a.middle)} | {number(a.high)}",
        lambda a: number(a.error),
    )
    return [shown(now.layer), now.kind, *map(cell, columns)]

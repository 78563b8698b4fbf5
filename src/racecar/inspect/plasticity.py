"""Is a net losing its plasticity, the ability to learn? What shows it, layer by layer, beside the start of training."""

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
"""A unit whose mean size is at most this share of its layer's counts as dead."""
LEAST = 1e-6
"""Directions of the data with a smaller singular value than this share of the largest are left out."""
QUANTILES = (0.1, 0.5, 0.9)
"""Shares of the data's energy up to which the gains low, middle and high are taken."""
Quantiles = tuple[float | None, float | None, float | None]
MORE_DEAD, LESS_RANK, DRIFT = 0.1, 0.5, 2.0
"""Bounds from which a layer shows a sign of lost plasticity: its share of dead units has grown by ``MORE_DEAD``, its
effective rank is below ``LESS_RANK`` times that at the start, or a gain is ``DRIFT`` times farther from 1."""


@dataclass(frozen=True)
class LayerPlasticity:
    """One layer, and the units that it makes."""

    layer: str
    kind: str
    units: int
    """Features, or channels of a convolution, after its norm and activation."""
    dead: float
    """Share of the units whose mean |activation|, over samples and positions, is at most 1 % of the layer's mean: the
    dormant ones of Sokar et al. (2023). A ReLU that is never above 0 is one of them."""
    rank: float
    """Effective rank of these units (Roy & Vetterli 2007): exp of the entropy of their singular values, from 1 to
    ``units``; 0 if all are 0."""
    low: float | None
    """Gain along the data: ‖A v‖ of the layer's linear map A for the principal directions v of what it reads; 1 keeps
    lengths. A tenth of the data's energy lies along directions of this gain or less. None where A is not known."""
    middle: float | None
    """Half of the energy does."""
    high: float | None
    """Nine tenths do."""
    error: float | None
    """‖AᵀAh − h‖² / ‖h‖² of what it reads, h, and its linear map A: what mode "linear" makes small. None without a
    rule for the layer."""

    def signs(self, start: LayerPlasticity) -> list[str]:
        """The signs of lost plasticity since the start, as "dead units" or "rank"; none: an empty list."""
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
    """Measures of a net's ability to learn, for every layer. Iterable over its layers; printable as a table."""

    layers: tuple[LayerPlasticity, ...]
    start: Plasticity | None = None
    """The same before training."""

    def __iter__(self) -> Iterator[LayerPlasticity]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, layer: str) -> LayerPlasticity:
        return next(one for one in self if one.layer == layer)

    @property
    def signs(self) -> dict[str, list[str]]:
        """Layer → its signs of lost plasticity since the start; layers without one are left out."""
        if self.start is None:
            return {}
        by_layer = {one.layer: one.signs(before) for one, before in zip(self, self.start, strict=True)}
        return {layer: signs for layer, signs in by_layer.items() if signs}

    @property
    def reading(self) -> str:
        """Is the net losing it? In a sentence. Signs are no proof: whether it still learns only a new task shows."""
        if self.start is None:
            return "Nothing to compare with: give start=, what was found before training."
        if not self.signs:
            return f"No sign of lost plasticity since the start in any of {len(self)} layers."
        told = "; ".join(f"{shown(layer)}: {', '.join(signs)}" for layer, signs in self.signs.items())
        return f"Signs of lost plasticity since the start in {len(self.signs)} of {len(self)} layers ({told})."

    def __str__(self) -> str:
        head = ["layer", "kind", "dead units", "effective rank", "gain along the data", "reverse error"]
        starts = [None] * len(self) if self.start is None else self.start.layers
        rows = [_row(one, before) for one, before in zip(self, starts, strict=True)]
        note = "" if self.start is None else f"\nin brackets: at the start\n{self.reading}"
        return table(head, rows) + note

    def scalars(self) -> dict[str, float]:
        """Name → number, for loggers: "plasticity/dead/LAYER", and so rank, low, middle, high and error."""
        names = ("dead", "rank", "low", "middle", "high", "error")
        values = {f"plasticity/{name}/{one.layer or 'network'}": getattr(one, name) for name in names for one in self}
        return {name: value for name, value in values.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        return {"layers": [finite(asdict(one)) for one in self], "signs": self.signs}


def plasticity(model: nn.Module, inputs: ExampleInputs, *, start: Plasticity | None = None) -> Plasticity:
    """Look whether a net is losing its plasticity, the ability to learn something new.

        before = plasticity(model, x)
        …  # train
        print(plasticity(model, x, start=before))

    Args:
        model: any model that Racecar can plan, or a Racecar; in evaluation mode, and nothing in it is changed.
        inputs: as for ``Racecar``: a tensor (N, …), a tuple of arguments or a dict of keyword arguments. Always the
            same ones, so that times can be compared; 64 or more, as a unit that none of them wakes counts as dead.
        start: what was found before training, to compare with.

    Returns:
        For every layer dead units, effective rank, gain along the data and reverse error.
    """
    model = unwrapped(model)
    with eval_mode(model), torch.no_grad():
        forward = ForwardPass(model, *call_arguments(inputs, model))
        alone = forward.by_itself()
        layers = tuple(_of_layer(forward, layer, alone.get(layer.index)) for layer in forward.layers)
    if start is not None and [one.layer for one in start] != [one.layer for one in layers]:
        raise ValueError("start is of another net: it has other layers")
    return Plasticity(layers, start)


def _of_layer(forward: ForwardPass, layer: Layer, alone: tuple[Tensor, Tensor, Tensor] | None) -> LayerPlasticity:
    value = forward.value(after(forward, layer))
    channels = layer.kind.startswith("conv") and value.dim() > 2
    units = (value.movedim(1, -1) if channels else value).double()
    units = units.reshape(-1, units.shape[-1])
    size = units.abs().mean(0)
    dead = float((size <= DORMANT * size.mean()).double().mean())
    values: Quantiles = None, None, None
    error = None
    if alone is not None:
        h, there, back = (one.double() for one in alone)
        error = float((back - h).square().sum() / h.square().sum()) if bool(h.any()) else 0.0
        if layer.op.module is None:
            features = forward.operation(layer).func is F.linear
            values = _along(h, there, features)
    return LayerPlasticity(layer.name, layer.kind, units.shape[1], dead, effective_rank(units), *values, error)


def effective_rank(rows: Tensor) -> float:
    """exp of the entropy of the singular values, over their sum, of a matrix (rows, n); NaN if it is not finite."""
    if not bool(rows.isfinite().all()):
        return math.nan
    share = _thin(rows)[1]
    share = share / share.sum().clamp_min(torch.finfo(share.dtype).tiny)
    return float(torch.special.entr(share).sum().exp()) if bool(share.any()) else 0.0


def _along(h: Tensor, there: Tensor, features: bool) -> Quantiles:
    """Quantiles of the gains ‖A v‖ along the principal directions v of h, weighted by the energy along each.

    Args:
        features: A works on the last dimension, place by place; if not, on whole samples.
    """
    x, y = (one.reshape(-1, one.shape[-1]) if features else one.reshape(len(one), -1) for one in (h, there))
    if not bool(x.isfinite().all() & y.isfinite().all()) or not bool(x.any()):
        return None, None, None
    left, values = _thin(x)
    gains, order = ((left.mT @ y).norm(dim=1) / values).sort()
    reached = values[order].square().cumsum(0)
    low, middle, high = (float(gains[reached >= share * reached[-1]][0]) for share in QUANTILES)
    return low, middle, high


def _thin(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Left singular vectors (rows, r) and the r singular values that are above rounding, by the smaller Gram matrix."""
    wide = rows.shape[0] <= rows.shape[1]
    squares, vectors = torch.linalg.eigh(rows @ rows.mT if wide else rows.mT @ rows)
    values = squares.clamp_min(0).sqrt()
    kept = values > LEAST * values[-1]
    vectors, values = vectors[:, kept], values[kept]
    return (vectors if wide else rows @ vectors / values), values


def _row(one: LayerPlasticity, start: LayerPlasticity | None) -> list[str]:
    def cell(say: Any) -> str:
        return say(one) if start is None else f"{say(one)} ({say(start)})"

    columns = (
        lambda a: f"{100 * a.dead:.0f} %",
        lambda a: f"{a.rank:.1f} of {a.units}",
        lambda a: "-" if a.low is None else f"{number(a.low)} | {number(a.middle)} | {number(a.high)}",
        lambda a: number(a.error),
    )
    return [shown(one.layer), one.kind, *map(cell, columns)]

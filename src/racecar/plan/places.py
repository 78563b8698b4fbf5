"""Where the way back applies batch norms again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from racecar.plan.graph import Graph, Op
from racecar.rules.norm import BATCH_NORMS
from racecar.support.precision import wide

if TYPE_CHECKING:
    from racecar.plan.plan import Entry
    from racecar.watch.calls import ModuleWatch


class Norm(NamedTuple):
    """What is known of a batch norm before it is applied again."""

    channels: int
    momentum: float
    """Of a new call against all before it; 0: as much as each of them."""
    device: torch.device
    dtype: torch.dtype


class Spot(NamedTuple):
    """A batch norm in a step of the way back."""

    key: str
    ordinal: int
    """Of the norm."""
    member: int | None
    """Which one of several calls that are taken as one step; None: the step itself."""


Places = dict[tuple[int, int], tuple[Spot, ...]]
"""Layer index and ordinal of a step's operation → the batch norms that the step applies again."""


def places(entries: Sequence[Entry]) -> Places:
    """The batch norms in the steps of a way back."""
    found: Places = {}
    for entry in entries:
        layer = entry.layer
        assert layer is not None
        for step in entry.steps:
            if step.action != "redo":
                continue
            key = f"{layer.name}:{layer.redo.index(step.op)}"
            if _is_batch_norm(step.op):
                spots = [Spot(key, step.op.ordinal, None)]
            else:
                norms = [(i, op) for i, op in enumerate(step.op.members) if _is_batch_norm(op)]
                spots = [Spot(f"{key}.{i}", op.ordinal, i) for i, op in norms]
            if spots:
                found[layer.index, step.op.ordinal] = tuple(spots)
    return found


def _is_batch_norm(op: Op) -> bool:
    return op.role == "norm" and op.rule is not None and op.rule.apply in BATCH_NORMS


def batch_norms(graph: Graph, modules: ModuleWatch | None) -> dict[int, Norm]:
    """The batch norms of a forward pass, by their ordinal."""
    found = {}
    for op in (one for whole in graph.ops for one in (whole.members or (whole,))):
        if _is_batch_norm(op):
            x = graph.trace.tensor(op.source)
            module = op.module or (op.owner.module if op.owner is not None else None)
            if module is None and modules is not None:
                module = modules.caller(graph.positions[op.ordinal])
            found[op.ordinal] = Norm(x.shape[1], _momentum(op, module), x.device, wide(x))
    return found


def _momentum(op: Op, module: nn.Module | None) -> float:
    """0 for a norm that takes the plain average of all calls: its function is given another number in each."""
    if isinstance(module, _NormBase):
        return 0.0 if module.momentum is None else float(module.momentum)
    return float(op.bind(None).get(6, "momentum", 0.1))


def norms_at(places: Places, norms: Mapping[int, Norm]) -> dict[str, Norm]:
    """By key, what is known of the norm there."""
    return {spot.key: norms[spot.ordinal] for spots in places.values() for spot in spots}

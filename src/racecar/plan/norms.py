"""The batch norms of a forward pass: what is known of each before the reverse pass applies it again."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from racecar.plan.graph import Graph, Op
from racecar.rules.norm import BATCH_NORMS
from racecar.rules.roles import Role
from racecar.support.precision import wide
from racecar.support.torch_private import AnyRunningNorm
from racecar.watch.modules import ModuleWatch


class Norm(NamedTuple):
    """What is known of a batch norm before it is applied again."""

    channels: int
    momentum: float
    """Of a new call against all before it; 0: as much as each of them."""
    device: torch.device
    dtype: torch.dtype


def is_batch_norm(op: Op) -> bool:
    """Whether an operation is a batch norm by itself."""
    return op.role is Role.NORM and op.rule is not None and op.rule.apply in BATCH_NORMS


def batch_norms(graph: Graph, modules: ModuleWatch | None) -> dict[int, Norm]:
    """The batch norms of a forward pass, by their ordinal."""
    found = {}
    for op in (one for whole in graph.ops for one in (whole.members or (whole,))):
        if is_batch_norm(op):
            x = graph.trace.tensor(op.source)
            module = op.module or (op.owner.module if op.owner is not None else None)
            if module is None and modules is not None:
                module = modules.caller(graph.positions[op.ordinal])
            found[op.ordinal] = Norm(x.shape[1], _momentum(op, module), x.device, wide(x))
    return found


def _momentum(op: Op, module: nn.Module | None) -> float:
    """0 for a norm that takes the plain average of all calls: its function is given another number in each."""
    if isinstance(module, AnyRunningNorm):
        return 0.0 if module.momentum is None else float(module.momentum)
    return float(op.bind(None).get(6, "momentum", 0.1))

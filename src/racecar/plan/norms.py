"""The batch norms of a forward pass, with what is needed to keep statistics of the reverse data for each."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from racecar.plan.graph import Graph, Op
from racecar.rules.roles import Role
from racecar.support.precision import wide
from racecar.support.torch_private import AnyRunningNorm
from racecar.watch.modules import ModuleWatch


class Norm(NamedTuple):
    """What is needed to keep statistics of the reverse data for one batch norm."""

    channels: int
    momentum: float
    """The weight of the newest batch in a running statistic; 0: the plain average of all batches."""
    device: torch.device
    dtype: torch.dtype


def is_batch_norm(op: Op) -> bool:
    """Whether an operation is a single batch norm, not several calls."""
    return op.role is Role.NORM and op.rule.keeps_statistics


def batch_norms(graph: Graph, modules: ModuleWatch | None) -> dict[int, Norm]:
    """The batch norms of a forward pass, by their ordinal."""
    norms = {}
    for op in graph.single_calls():
        if is_batch_norm(op):
            x = graph.trace.tensor(op.source)
            module = op.module or (op.owner.module if op.owner is not None else None)
            if module is None and modules is not None:
                module = modules.caller(graph.positions[op.ordinal])
            norms[op.ordinal] = Norm(x.shape[1], _momentum(op, module), x.device, wide(x))
    return norms


def _momentum(op: Op, module: nn.Module | None) -> float:
    """``Norm.momentum``. A norm with ``momentum=None`` passes its function a different number in each call."""
    if isinstance(module, AnyRunningNorm):
        return 0.0 if module.momentum is None else float(module.momentum)
    return float(op.bind(None).get(6, "momentum", 0.1))

"""Causal convolutions: padded by the whole kernel on both sides and cut at the end, so that output t depends on inputs
up to t. The cut is part of the layer: it removes outputs at positions that the input does not have."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from racecar.plan.graph import Graph, Op
from racecar.rules.conv import conv, whole_padding
from racecar.rules.operation import Operation
from racecar.rules.shape import index_parts


def causal_cut(
    graph: Graph, op: Op, operation: Callable[[Op], Operation], tensor: Callable[[int], Tensor]
) -> Op | None:
    """The slice ``[..., :T]`` after ``op`` if ``op`` is a causal convolution, else None.

    Args:
        operation: gives an operation the arguments of a pass.
        tensor: finds the tensor of a value in that pass.
    """
    users = graph.users.get(op.outputs[0], [])
    if op.rule.apply is not conv or len(users) != 1 or users[0].func is not Tensor.__getitem__:
        return None
    (cut,) = users
    dims = len(added := whole_padding(operation(op)))
    kept, before = tensor(cut.outputs[0]).shape[-dims:], tensor(op.source).shape[-dims:]
    if not any(added) or any(new > old for new, old in zip(kept, before, strict=True)):
        return None
    keeps_start = all(
        part is ... or (isinstance(part, slice) and part.start in (None, 0) and part.step in (None, 1))
        for part in index_parts(operation(cut).args[1])
    )
    return cut if keeps_start else None

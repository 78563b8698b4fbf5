"""Causal convolutions: padded by the whole kernel on both sides, and cut at the end, so that what stands at t is of
positions up to t. The cut is part of the layer: what it drops is of positions that the input does not have."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from racecar.plan.graph import Graph, Op
from racecar.rules.conv import conv, whole_padding
from racecar.rules.operation import Operation


def causal_cut(
    graph: Graph, op: Op, operation: Callable[[Op], Operation], tensor: Callable[[int], Tensor]
) -> Op | None:
    """The slice ``[..., :T]`` that makes a convolution causal; None of all other operations.

    Args:
        operation: an operation with the arguments of a pass.
        tensor: a value of that pass.
    """
    users = graph.users.get(op.outputs[0], [])
    if op.rule is None or op.rule.apply is not conv or len(users) != 1 or users[0].func is not Tensor.__getitem__:
        return None
    (cut,) = users
    dims = len(added := whole_padding(operation(op)))
    kept, before = tensor(cut.outputs[0]).shape[-dims:], tensor(op.source).shape[-dims:]
    if not any(added) or any(new > old for new, old in zip(kept, before, strict=True)):
        return None
    index = operation(cut).args[1]
    parts = index if isinstance(index, tuple) else (index,)
    first = all(
        one is ... or (isinstance(one, slice) and one.start in (None, 0) and one.step in (None, 1)) for one in parts
    )
    return cut if first else None

"""Where the batch is: which dimension of each value runs over the samples.

A slice of the batch must cut every tensor of the reverse pass alike, also where the model has moved the batch
(``(T, N, C)``) or merged it with tokens or windows (``(N·T, C)``, ``(T·N, C)``). What each operation does to it is said
by its rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from racecar.plan.graph import Graph, Op
from racecar.rules.batch_dim import FIXED, BatchDim, BatchedCall, stays
from racecar.rules.roles import Role


def batch_dims(graph: Graph, size: int) -> dict[int, BatchDim | None]:
    """Where the samples of a batch of ``size`` run in every value; None where that is lost."""
    trace = graph.trace
    found: dict[int, BatchDim | None] = {}
    for value, (call, slot) in enumerate(trace.values):
        if call < 0:
            tensor = trace.inputs[slot]
            found[value] = BatchDim(0) if tensor.dim() > 0 and tensor.shape[0] == size else None
    for op in graph.ops:
        for one in op.members or (op,):
            _follow(graph, one, found, size)
    return found


def _follow(graph: Graph, op: Op, found: dict[int, BatchDim | None], size: int) -> None:
    tensor = graph.trace.tensor
    value, batch = next(((v, batch) for _, v in op.inputs if (batch := found.get(v)) is not None), (-1, None))
    if batch is None or (op.func is None and len(op.inputs) == 1):  # written into a part of a constant
        found.update(dict.fromkeys(op.outputs, None))
        return
    outs = tuple((out, tensor(out)) for out in op.outputs)
    alone = op.rule is not None and op.module is None and op.role not in (Role.JOIN, Role.SKIPPED)
    way = op.rule.batch if op.rule is not None and alone else None
    call = None if way is None else graph.call(op.ordinal)  # to write into a part of a tensor is no call of its own
    one = BatchedCall(op.bind(call), tensor(value), batch, outs, size, op.slot)
    found.update(zip(op.outputs, (way or stays)(one), strict=True))


def place_in(
    graph: Graph, batch: Mapping[int, BatchDim | None], value: int, shape: Callable[[int], torch.Size]
) -> BatchDim | None:
    """Where the samples run in a value of a pass, whose values have the shapes that ``shape`` finds; ``batch``: where
    they run in the planned pass."""
    place = batch.get(value)
    if place is None or place.outer_of in (None, FIXED):
        return place
    source, made = graph.maker[place.outer_of].source, batch[place.outer_of]
    before = place_in(graph, batch, source, shape)
    assert before is not None
    assert made is not None
    slower = shape(source)[: before.dim].numel() * before.outer
    return BatchDim(place.dim, slower // shape(place.outer_of)[: made.dim].numel())

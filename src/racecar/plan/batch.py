"""The batch dimension of every value: which dimension runs over the samples.

A slice of the batch must take the same samples of every tensor in the reverse pass, also where the model has moved the
batch (``(T, N, C)``) or merged it with tokens or windows (``(N·T, C)``, ``(T·N, C)``). The rule of each operation says
where the samples run in its output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from racecar.plan.graph import Graph, Op
from racecar.rules.batch_dim import FIXED, BatchDim, BatchDims, BatchedCall, stays
from racecar.rules.registry import NO_RULE
from racecar.rules.roles import Role


def batch_dims(graph: Graph, size: int) -> dict[int, BatchDim | None]:
    """Where the samples of a batch of ``size`` run in every value; None where that cannot be determined."""
    trace = graph.trace
    places: dict[int, BatchDim | None] = {}
    for value, (call, slot) in enumerate(trace.values):
        if call < 0:
            tensor = trace.inputs[slot]
            places[value] = BatchDim(0) if tensor.dim() > 0 and tensor.shape[0] == size else None
    for op in graph.single_calls():
        places.update(zip(op.outputs, _output_places(graph, op, places, size), strict=True))
    return places


def _output_places(graph: Graph, op: Op, places: Mapping[int, BatchDim | None], size: int) -> BatchDims:
    """Where the samples run in the outputs of an operation, given ``places``, where they run in its inputs."""
    tensor = graph.trace.tensor
    followed = [value for _, value in op.inputs if places.get(value) is not None]
    batch = places[followed[0]] if followed else None
    if batch is None or (op.func is None and len(op.inputs) == 1):  # data written into a part of a constant
        return [None] * len(op.outputs)
    outputs = tuple([(out, tensor(out)) for out in op.outputs])
    has_rule = op.rule is not NO_RULE and op.module is None and op.role not in (Role.JOIN, Role.SKIPPED)
    batch_rule = op.rule.batch if has_rule else None
    # Writing into a part of a tensor has no rule, and no call of its own.
    call = None if batch_rule is None else graph.call(op.ordinal)
    return (batch_rule or stays)(BatchedCall(op.bind(call), tensor(followed[0]), batch, outputs, size, op.slot))


def place_in(
    graph: Graph, batch: Mapping[int, BatchDim | None], value: int, shape: Callable[[int], torch.Size]
) -> BatchDim | None:
    """Where the samples run in a value of another pass, in which sizes may differ from those of the planned pass.

    Args:
        batch: where the samples run in the values of the planned pass.
        shape: finds the shape of a value in the other pass.
    """
    place = batch.get(value)
    if place is None or place.outer_of in (None, FIXED):
        return place
    source, reshaped = graph.maker[place.outer_of].source, batch[place.outer_of]
    before = place_in(graph, batch, source, shape)
    assert before is not None
    assert reshaped is not None
    slower = shape(source)[: before.dim].numel() * before.outer
    return BatchDim(place.dim, slower // shape(place.outer_of)[: reshaped.dim].numel())

"""Where the batch is: which dimension of each value runs over the samples.

A slice of the batch must cut every tensor of the reverse pass alike, also where the model has moved the batch
(``(T, N, C)``) or merged it with tokens or windows (``(N·T, C)``, ``(T·N, C)``). Rearrangements are followed by
sending the sample number of every element through them: nothing that looks at values, such as an index into a table.

Where the batch was merged, its place depends on the other sizes. A reshape keeps the order of the elements, and so how
many of them vary more slowly than the sample: from that the place follows for sequences of any length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from racecar.plan.graph import Graph, Op
from racecar.rules.pool import reduced_dims
from racecar.rules.roles import Role
from racecar.rules.shape import reshape


class BatchDim(NamedTuple):
    """Dimension ``dim`` counts ``outer`` × samples × what is left."""

    dim: int
    outer: int = 1
    """As in the pass that was planned."""
    by: int | None = None
    """The value, made by a reshape, that has the same ``outer`` in every pass; None: it is 1 in every pass."""


FIXED = -1
"""Instead of such a value: ``outer`` is known for the sizes of the planned pass alone."""


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
    trace = graph.trace
    known = [(value, batch) for _, value in op.inputs if (batch := found.get(value)) is not None]
    if not known:
        found.update(dict.fromkeys(op.outputs, None))
        return
    value, batch = known[0]
    x = trace.tensor(value)
    outs: Sequence[BatchDim | None]
    if _rearranges(op):
        places = _send_numbers(graph, op, x, batch, size)
        outs = [
            None if place is None else place._replace(by=_by(graph, op, out, place, x, batch))
            for out, place in zip(op.outputs, places[op.slot :], strict=False)
        ]
    else:
        shift = _shift(graph, op) if op.role is Role.SOURCE and op.module is None else 0
        outs = [_same(op, trace.tensor(out).shape, x.shape, batch, shift) for out in op.outputs]
    found.update(zip(op.outputs, outs, strict=True))


def _rearranges(op: Op) -> bool:
    """Whether an operation moves values about and looks at none of them, so that it takes invented ones."""
    if op.role not in (Role.SHAPE, Role.SELECT) or op.module is not None or op.by_vjp:
        return False
    return op.rule is None or op.rule.role is not Role.LAYER  # which is a product with a constant


def _shift(graph: Graph, op: Op) -> int | None:
    """By how many dimensions what an index picks from a table has the samples later than the index; None: unknown."""
    (path, value), call = op.inputs[0], graph.call(op.ordinal)
    if op.func is Tensor.__getitem__:
        if graph.trace.tensor(value).dtype == torch.bool:
            return None
        at = int(path[1]) if len(path) > 1 else 0
        others = [part for i, part in enumerate(call.args[1]) if i != at] if len(path) > 1 else []
        return at if all(part is None or isinstance(part, slice) for part in others) else None
    if op.kind == "index_select":
        return op.bind(call).get(1, "dim") % graph.trace.tensor(op.outputs[0]).dim()
    kept = op.rule is not None and op.rule.role in (Role.SOURCE, Role.PASS)
    return 0 if kept or op.kind in ("gather", "take", "take_along_dim") else None


def _by(graph: Graph, op: Op, out: int, place: BatchDim, x: Tensor, batch: BatchDim) -> int | None:
    """What says how many elements of an output vary more slowly than the sample."""
    if op.rule is not None and op.rule.apply is reshape:
        return None if batch == BatchDim(0) else FIXED if batch.by == FIXED else out
    same = place.outer == batch.outer and graph.trace.tensor(out).shape[place.dim] == x.shape[batch.dim]
    return batch.by if same or (batch.by is None and place.outer == 1) else FIXED


def place_in(
    graph: Graph, batch: Mapping[int, BatchDim | None], value: int, shape: Callable[[int], torch.Size]
) -> BatchDim | None:
    """Where the samples run in a value of a pass, whose values have the shapes that ``shape`` finds; ``batch``: where
    they run in the planned pass."""
    place = batch.get(value)
    if place is None or place.by in (None, FIXED):
        return place
    source, made = graph.maker[place.by].source, batch[place.by]
    before = place_in(graph, batch, source, shape)
    assert before is not None
    assert made is not None
    slower = shape(source)[: before.dim].numel() * before.outer
    return BatchDim(place.dim, slower // shape(place.by)[: made.dim].numel())


def _numbers(length: int, outer: int, size: int, like: Tensor) -> Tensor:
    """Sample numbers 1 … size along a dimension of ``length``."""
    each = torch.arange(1, size + 1, dtype=like.dtype, device=like.device)
    return each.repeat_interleave(length // (size * outer)).repeat(outer)


def _send_numbers(graph: Graph, op: Op, x: Tensor, batch: BatchDim, size: int) -> Sequence[BatchDim | None]:
    """Send sample numbers through a rearrangement and see where they come out."""
    numbers = _numbers(x.shape[batch.dim], batch.outer, size, x)
    coded = torch.empty_like(x)  # with x's strides, for views
    coded.copy_(numbers.view(-1, *(1,) * (x.dim() - batch.dim - 1)))
    operation = op.bind(graph.call(op.ordinal))
    operation.args = _blank(operation.args)
    out = operation(coded)
    made = [out] if isinstance(out, Tensor) else [one for one in out if isinstance(one, Tensor)]
    # Where topk found its values is numbered along with them.
    return [_find(one if one.is_floating_point() else made[0], size) for one in made]


def _blank(args: Any) -> Any:
    """Constants beside the data say nothing about samples."""
    return type(args)(
        torch.zeros_like(one) if isinstance(one, Tensor) and one.is_floating_point()
        else _blank(one) if type(one) in (tuple, list)
        else one
        for one in args
    )  # fmt: skip


def _find(coded: Tensor, size: int) -> BatchDim | None:
    """The dimension along which sample numbers run; padding (0) says nothing."""
    for dim, length in enumerate(coded.shape):
        if length % size:
            continue
        for outer in range(1, length // size + 1):
            if length // size % outer == 0:
                numbers = _numbers(length, outer, size, coded).view(-1, *(1,) * (coded.dim() - dim - 1))
                if bool(((coded == numbers) | (coded == 0)).all()):
                    return BatchDim(dim, outer)
    return None


def _same(op: Op, new: torch.Size, old: torch.Size, batch: BatchDim, shift: int | None = 0) -> BatchDim | None:
    """Operations that keep dimensions where they are, but for reductions, which drop some, and lookups."""
    dim = batch.dim
    if op.func is None and len(op.inputs) == 1:  # written into a part of a constant
        return None
    if op.rule is not None and op.rule.lift is not None and len(new) < len(old):
        gone = reduced_dims(op.args, op.kwargs, len(old))
        return None if dim in gone else batch._replace(dim=dim - sum(d < dim for d in gone))
    if shift is None or dim + shift >= len(new) or new[dim + shift] != old[dim]:
        return None
    return batch._replace(dim=dim + shift)

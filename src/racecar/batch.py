"""Where the batch is: which dimension of each value runs over the samples.

A slice of the batch must cut every tensor of the way back alike, also where the model has moved the batch
(``(T, N, C)``) or merged it with tokens or windows (``(N·T, C)``, ``(T·N, C)``). Rearrangements are followed by
sending the sample number of every element through them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from racecar.graph import Graph, Op
from racecar.rules.pool import reduced_dims


class Batch(NamedTuple):
    """Dimension ``dim`` counts ``outer`` × samples × what is left."""

    dim: int
    outer: int = 1


def batch_size(inputs: Sequence[Tensor]) -> int:
    """The first dimension of the model's first input."""
    return next((tensor.shape[0] for tensor in inputs if tensor.dim() > 0), 1)


def batch_dims(graph: Graph, size: int) -> dict[int, Batch | None]:
    """Where the samples of a batch of ``size`` run in every value; None where that is lost."""
    trace = graph.trace
    found: dict[int, Batch | None] = {}
    for value, (call, slot) in enumerate(trace.values):
        if call < 0:
            tensor = trace.inputs[slot]
            found[value] = Batch(0) if tensor.dim() > 0 and tensor.shape[0] == size else None
    for op in graph.ops:
        for one in op.members or (op,):
            _follow(graph, one, found, size)
    return found


def _follow(graph: Graph, op: Op, found: dict[int, Batch | None], size: int) -> None:
    trace = graph.trace
    known = [(value, batch) for _, value in op.inputs if (batch := found.get(value)) is not None]
    if not known:
        found.update(dict.fromkeys(op.outputs, None))
        return
    value, batch = known[0]
    x = trace.tensor(value)
    outs: Sequence[Batch | None]
    if op.role in ("shape", "select") and op.module is None and not op.kind.endswith("(vjp)"):
        outs = _send_numbers(graph, op, x, batch, size)
    else:
        outs = [_same(op, trace.tensor(out).shape, x.shape, batch) for out in op.outputs]
    found.update(zip(op.outputs, outs, strict=True))


def _numbers(length: int, outer: int, size: int, like: Tensor) -> Tensor:
    """Sample numbers 1 … size along a dimension of ``length``."""
    each = torch.arange(1, size + 1, dtype=like.dtype, device=like.device)
    return each.repeat_interleave(length // (size * outer)).repeat(outer)


def _send_numbers(graph: Graph, op: Op, x: Tensor, batch: Batch, size: int) -> Sequence[Batch | None]:
    """Send sample numbers through a rearrangement and see where they come out."""
    numbers = _numbers(x.shape[batch.dim], batch.outer, size, x)
    coded = torch.empty_like(x)  # with x's strides, for views
    coded.copy_(numbers.view(-1, *(1,) * (x.dim() - batch.dim - 1)))
    operation = op.bind(graph.call(op.ordinal))
    operation.args = _blank(operation.args)
    out = operation(coded)
    made = [out] if isinstance(out, Tensor) else [one for one in out if isinstance(one, Tensor)]
    return [_find(one, size) for one in made]


def _blank(args: Any) -> Any:
    """Constants beside the data say nothing about samples."""
    return type(args)(
        torch.zeros_like(one) if isinstance(one, Tensor) and one.is_floating_point()
        else _blank(one) if type(one) in (tuple, list)
        else one
        for one in args
    )  # fmt: skip


def _find(coded: Tensor, size: int) -> Batch | None:
    """The dimension along which sample numbers run; padding (0) says nothing."""
    for dim, length in enumerate(coded.shape):
        if length % size:
            continue
        for outer in range(1, length // size + 1):
            if length // size % outer == 0:
                numbers = _numbers(length, outer, size, coded).view(-1, *(1,) * (coded.dim() - dim - 1))
                if bool(((coded == numbers) | (coded == 0)).all()):
                    return Batch(dim, outer)
    return None


def _same(op: Op, new: torch.Size, old: torch.Size, batch: Batch) -> Batch | None:
    """Operations that keep dimensions where they are, but for reductions, which drop some."""
    dim = batch.dim
    if op.func is None and len(op.inputs) == 1:  # written into a part of a constant
        return None
    if op.rule is not None and op.rule.lift is not None and len(new) < len(old):
        gone = reduced_dims(op.args, op.kwargs, len(old))
        return None if dim in gone else Batch(dim - sum(d < dim for d in gone), batch.outer)
    return batch if dim < len(new) and new[dim] == old[dim] else None

"""Which dimension of an operation's output runs over the samples of the batch.

Most operations keep dimensions where they are. For rearrangements the batch dimension is found by experiment: every
element is replaced by the number of its sample, the operation is called, and the numbers are looked for in its output.
That works for operations that do not look at values; an index into a table does.

Where the batch was merged with another dimension (tokens, windows), its place depends on their sizes. A reshape keeps
the order of the elements, and so the number of elements that vary more slowly than the sample. That number gives the
place for sequences of any length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from racecar.rules.operation import Operation, reduced_dims


class BatchDim(NamedTuple):
    """Where the samples run in a tensor: dimension ``dim`` has length ``outer`` × samples × the rest."""

    dim: int
    outer: int = 1
    """How often the sequence of all samples repeats along the dimension, in the planned pass."""
    outer_of: int | None = None
    """The number of a value, made by a reshape, from whose shape ``outer`` is computed in another pass; None: it is 1
    in every pass."""


FIXED = -1
"""The value of ``BatchDim.outer_of`` that says: ``outer`` is known for the sizes of the planned pass alone."""


class BatchedCall(NamedTuple):
    """One operation of the planned pass, with the place of the samples in its input."""

    op: Operation
    x: Tensor
    """The input of the operation."""
    batch: BatchDim
    """Where the samples run in x."""
    outputs: tuple[tuple[int, Tensor], ...]
    """Each output as (number of the value, tensor)."""
    size: int
    """Number of samples in the batch."""
    slot: int = 0
    """The index, among the results of the function, of the first one in ``outputs``."""


BatchDims = list[BatchDim | None]
"""Where the samples run in each output; None where that cannot be determined."""
BatchRule = Callable[[BatchedCall], BatchDims]
"""Finds where the samples run in each output of an operation."""


def stays(call: BatchedCall, shift: int = 0) -> BatchDims:
    """Batch rule of operations that keep every dimension in its place, or move all of them back by ``shift``."""
    length, dim = call.x.shape[call.batch.dim], call.batch.dim + shift
    return [
        call.batch._replace(dim=dim) if dim < out.dim() and out.shape[dim] == length else None
        for _, out in call.outputs
    ]


def reduces(call: BatchedCall) -> BatchDims:
    """Batch rule of reductions: dropped dimensions shift the others; if the samples' own is reduced, they are lost."""
    rank, dim = call.x.dim(), call.batch.dim
    if call.outputs[0][1].dim() == rank:
        return stays(call)
    dropped = reduced_dims(call.op, rank)
    batch = None if dim in dropped else call.batch._replace(dim=dim - sum(d < dim for d in dropped))
    return [batch] * len(call.outputs)


def untracked(call: BatchedCall) -> BatchDims:
    """Batch rule of operations after which the samples cannot be followed."""
    return [None] * len(call.outputs)


def moves(call: BatchedCall, keeps_order: bool = False) -> BatchDims:
    """Batch rule of rearrangements and selections. ``keeps_order``: whether the order of the elements is kept."""
    if not call.x.is_floating_point():  # integers are only converted, or used as an index
        return untracked(call) if call.outputs[0][1].is_floating_point() else stays(call)
    places = _places_by_experiment(call)[call.slot :]
    return [
        None if place is None else place._replace(outer_of=_outer_of(call, value, out, place, keeps_order))
        for (value, out), place in zip(call.outputs, places, strict=False)
    ]


def reshapes(call: BatchedCall) -> BatchDims:
    """Batch rule of reshapes, which keep the order of the elements."""
    return moves(call, keeps_order=True)


def _outer_of(call: BatchedCall, value: int, out: Tensor, place: BatchDim, keeps_order: bool) -> int | None:
    """``BatchDim.outer_of`` of the output with the number ``value``."""
    batch = call.batch
    if keeps_order:
        return None if batch == BatchDim(0) else FIXED if batch.outer_of == FIXED else value
    same = place.outer == batch.outer and out.shape[place.dim] == call.x.shape[batch.dim]
    return batch.outer_of if same or (batch.outer_of is None and place.outer == 1) else FIXED


def _places_by_experiment(call: BatchedCall) -> BatchDims:
    """Where the samples run in all results of a rearrangement: it is called on a tensor of sample numbers."""
    x, batch, op = call.x, call.batch, call.op
    numbers = _sample_numbers(x.shape[batch.dim], batch.outer, call.size, x)
    coded = torch.empty_like(x)  # with x's strides, for views
    coded.copy_(numbers.view(-1, *(1,) * (x.dim() - batch.dim - 1)))
    out = Operation(op.func, _zero_constants(op.args), op.kwargs, op.at, inplace_at=op.inplace_at)(coded)
    results = [out] if isinstance(out, Tensor) else [part for part in out if isinstance(part, Tensor)]
    # The indices that topk returns are integers: they have the layout of its values.
    return [_find_samples(part if part.is_floating_point() else results[0], call.size) for part in results]


def _sample_numbers(length: int, outer: int, size: int, like: Tensor) -> Tensor:
    """Sample numbers 1 … size along a dimension of ``length``."""
    numbers = torch.arange(1, size + 1, dtype=like.dtype, device=like.device)
    return numbers.repeat_interleave(length // (size * outer)).repeat(outer)


def _zero_constants(args: Any) -> Any:
    """The arguments with 0 in constant tensors, so that their values are not taken for sample numbers."""
    return type(args)(
        torch.zeros_like(arg) if isinstance(arg, Tensor) and arg.is_floating_point()
        else _zero_constants(arg) if type(arg) in (tuple, list)
        else arg
        for arg in args
    )  # fmt: skip


def _find_samples(coded: Tensor, size: int) -> BatchDim | None:
    """The dimension of ``coded`` along which sample numbers run; zeros, which padding fills in, match any number."""
    for dim, length in enumerate(coded.shape):
        if length % size:
            continue
        for outer in range(1, length // size + 1):
            if length // size % outer == 0:
                numbers = _sample_numbers(length, outer, size, coded).view(-1, *(1,) * (coded.dim() - dim - 1))
                if bool(((coded == numbers) | (coded == 0)).all()):
                    return BatchDim(dim, outer)
    return None

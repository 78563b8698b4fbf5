"""What an operation does to the batch: which dimension of its output runs over the samples.

Most operations keep dimensions where they are. Rearrangements are followed by sending the sample number of every
element through them: nothing that looks at values, such as an index into a table.

Where the batch was merged with others, its place depends on their sizes. A reshape keeps the order of the elements, and
so how many of them vary more slowly than the sample: from that the place follows for sequences of any length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from racecar.rules.operation import Operation, reduced_dims


class BatchDim(NamedTuple):
    """Dimension ``dim`` counts ``outer`` × samples × what is left."""

    dim: int
    outer: int = 1
    """As in the pass that was planned."""
    by: int | None = None
    """The value, made by a reshape, that has the same ``outer`` in every pass; None: it is 1 in every pass."""


FIXED = -1
"""Instead of such a value: ``outer`` is known for the sizes of the planned pass alone."""


class OnBatch(NamedTuple):
    """One operation in the planned pass, on a value of which is known where the samples run."""

    op: Operation
    x: Tensor
    batch: BatchDim
    """Of x."""
    outs: tuple[tuple[int, Tensor], ...]
    """What it makes: each value with its tensor."""
    size: int
    """Samples in the batch."""
    slot: int = 0
    """The first of the function's results that is among ``outs``."""


Places = list[BatchDim | None]
"""Where the samples run in each of ``outs``; None where that is lost."""
BatchWay = Callable[[OnBatch], Places]


def stays(one: OnBatch, shift: int = 0) -> Places:
    """Every dimension stays where it is, or comes ``shift`` later."""
    old, found = one.x.shape, Places()
    for _, out in one.outs:
        dim = one.batch.dim + shift
        same = dim < out.dim() and out.shape[dim] == old[one.batch.dim]
        found.append(one.batch._replace(dim=dim) if same else None)
    return found


def reduces(one: OnBatch) -> Places:
    """Dimensions that are dropped move the others; with the samples' own, these are lost."""
    rank, dim = one.x.dim(), one.batch.dim
    if one.outs[0][1].dim() == rank:
        return stays(one)
    gone = reduced_dims(one.op, rank)
    batch = None if dim in gone else one.batch._replace(dim=dim - sum(d < dim for d in gone))
    return [batch] * len(one.outs)


def lost(one: OnBatch) -> Places:
    """Nobody knows."""
    return [None] * len(one.outs)


def moves(one: OnBatch, keeps_order: bool = False) -> Places:
    """Elements are moved about, and nothing looks at their values. ``keeps_order``: as in a reshape."""
    if not one.x.is_floating_point():  # whole numbers stay what they are, or look something up
        return lost(one) if one.outs[0][1].is_floating_point() else stays(one)
    places = _send_numbers(one)[one.slot :]
    return [
        None if place is None else place._replace(by=_by(one, value, out, place, keeps_order))
        for (value, out), place in zip(one.outs, places, strict=False)
    ]


def reshapes(one: OnBatch) -> Places:
    """The order of the elements is kept."""
    return moves(one, keeps_order=True)


def _by(one: OnBatch, value: int, out: Tensor, place: BatchDim, keeps_order: bool) -> int | None:
    """What says how many elements of an output vary more slowly than the sample."""
    batch = one.batch
    if keeps_order:
        return None if batch == BatchDim(0) else FIXED if batch.by == FIXED else value
    same = place.outer == batch.outer and out.shape[place.dim] == one.x.shape[batch.dim]
    return batch.by if same or (batch.by is None and place.outer == 1) else FIXED


def _send_numbers(one: OnBatch) -> Places:
    """Send sample numbers through a rearrangement and see where they come out."""
    x, batch, op = one.x, one.batch, one.op
    numbers = _numbers(x.shape[batch.dim], batch.outer, one.size, x)
    coded = torch.empty_like(x)  # with x's strides, for views
    coded.copy_(numbers.view(-1, *(1,) * (x.dim() - batch.dim - 1)))
    out = Operation(op.func, _blank(op.args), op.kwargs, op.at, inplace_at=op.inplace_at)(coded)
    made = [out] if isinstance(out, Tensor) else [one for one in out if isinstance(one, Tensor)]
    # Where topk found its values is numbered along with them.
    return [_find(part if part.is_floating_point() else made[0], one.size) for part in made]


def _numbers(length: int, outer: int, size: int, like: Tensor) -> Tensor:
    """Sample numbers 1 … size along a dimension of ``length``."""
    each = torch.arange(1, size + 1, dtype=like.dtype, device=like.device)
    return each.repeat_interleave(length // (size * outer)).repeat(outer)


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

"""Views, permutations, padding and cropping: undone exactly; dropout and casts: nothing to undo."""

from __future__ import annotations

from typing import Any

import torch
from torch import Size, Tensor
from torch.nn import functional as F

from racecar.rules.batch_dim import OnBatch, Places, lost, moves, reshapes, stays
from racecar.rules.fallback import adjoint
from racecar.rules.marks import OnMask, moved_by, shortened, together, unknown
from racecar.rules.operation import Operation
from racecar.rules.registry import register, register_plain
from racecar.rules.roles import Role
from racecar.rules.torch_functions import forms

_PASS = (
    "alpha_dropout bernoulli_dropout clone contiguous cpu cuda detach dropout dropout1d dropout2d dropout3d double "
    "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine feature_alpha_dropout feature_dropout float "
    "fused_moving_avg_obs_fake_quant half bfloat16 positive requires_grad_ to type type_as"
)

register_plain(Role.PASS, *forms(_PASS))
register_plain(Role.SOURCE, F.embedding, mask=lambda one: one.marks[0].unsqueeze(-1) if len(one.marks) == 1 else None)
register_plain(Role.SOURCE, F.embedding_bag)
_PARTS = forms("select chunk split unbind tensor_split unsafe_chunk unsafe_split split_with_sizes hsplit vsplit dsplit")
register_plain(Role.SELECT, *_PARTS)
register_plain(Role.SELECT, *forms("masked_select"))
register_plain(Role.SELECT, *forms("topk"), mask=unknown)


def _index_selected(one: OnBatch) -> Places:
    """An index picks along one dimension."""
    return moves(one) if one.op.data_first else stays(one, one.op.get(1, "dim") % one.outs[0][1].dim())


def _picked(one: OnBatch) -> Places:
    """What is picked has the form of the index."""
    return moves(one) if one.op.data_first else stays(one)


register_plain(Role.SELECT, *forms("index_select"), batch=_index_selected)
register_plain(Role.SELECT, *forms("gather take take_along_dim"), batch=_picked)

PARTS = frozenset((*_PARTS, *forms("narrow"), Tensor.__getitem__))
"""Functions that give every element at most once, and so may leave out none."""


@register(
    *forms("flatten", "reshape", "view", "view_as", "reshape_as", "unflatten", "squeeze", "unsqueeze", "ravel"),
    role=Role.SHAPE,
    again=lambda op, x, shape: x.reshape(shape),
    batch=reshapes,
    mask=moved_by(lambda mark, shape: mark.reshape(shape)),
)
def reshape(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Anything that keeps the order of the elements."""
    return y.reshape(shape)


def _ints(op: Operation, position: int, name: str) -> tuple[int, ...]:
    """Sizes or dimensions given one by one, or as one sequence."""
    rest = op.args[position:]
    if rest and not isinstance(rest[0], int):
        return tuple(rest[0])
    return tuple(rest) if rest else tuple(op.kwargs[name])


@register(*forms("permute"), role=Role.SHAPE)
def permute(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """y.permute of the inverse permutation."""
    dims = [d % y.dim() for d in _ints(op, 1, "dims")]
    return y.permute([dims.index(d) for d in range(y.dim())])


@register(*forms("transpose", "swapaxes", "swapdims"), role=Role.SHAPE)
def transpose(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Swapping twice is nothing."""
    first = op.get(1, "dim0", op.kwargs.get("axis0"))
    second = op.get(2, "dim1", op.kwargs.get("axis1"))
    return y.transpose(first, second)


@register(*forms("movedim", "moveaxis"), role=Role.SHAPE)
def movedim(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Moved back: source and destination change places."""
    return y.movedim(op.get(2, "destination"), op.get(1, "source"))


@register(*forms("t", "adjoint"), Tensor.mT.__get__, Tensor.mH.__get__, role=Role.SHAPE)  # type: ignore[attr-defined]
def matrix_transpose(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The last two dimensions."""
    return y.mT if y.dim() > 1 else y


@register(Tensor.T.__get__, Tensor.H.__get__, role=Role.SHAPE)  # type: ignore[attr-defined]
def reverse_dimensions(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """All dimensions in reverse order."""
    return y.permute(*range(y.dim() - 1, -1, -1))


@register(*forms("pixel_shuffle"), role=Role.SHAPE)
def pixel_shuffle(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """(N, C, H·r, W·r) → (N, C·r², H, W)."""
    return F.pixel_unshuffle(y, op.get(1, "upscale_factor"))


@register(*forms("pixel_unshuffle"), role=Role.SHAPE)
def pixel_unshuffle(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """(N, C·r², H, W) → (N, C, H·r, W·r)."""
    return F.pixel_shuffle(y, op.get(1, "downscale_factor"))


@register(*forms("channel_shuffle", "native_channel_shuffle"), role=Role.SHAPE)
def channel_shuffle(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Shuffling C channels in g groups is undone by C/g groups."""
    return F.channel_shuffle(y, shape[1] // op.get(1, "groups"))


def _padded(one: OnMask) -> Tensor | None:
    """To be reflected, a mark cannot be bool."""
    mark, operation = one.marks[0], one.operation
    if mark is None or not operation.data_first:
        return None
    return shortened(operation(mark.expand(one.inputs[0].shape).float()) != 0)


@register(*forms("pad"), role=Role.SHAPE, mask=_padded)
def pad(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Padding of any mode is cropped; a crop is filled with zeros."""
    return F.pad(y, [-n for n in op.get(1, "pad")])


@register(*forms("flip"), role=Role.SHAPE)
def flip(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Flipping twice is nothing."""
    return y.flip(_ints(op, 1, "dims"))


@register(*forms("roll"), role=Role.SHAPE)
def roll(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Rolled back."""
    shifts = op.get(1, "shifts")
    back = -shifts if isinstance(shifts, int) else tuple(-s for s in shifts)
    dims = op.get(2, "dims", ())
    return y.roll(back, () if dims is None else dims)


@register(*forms("narrow"), role=Role.SHAPE)
def narrow(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """What was cut off comes back as zeros."""
    dim = op.get(1, "dim") % len(shape)
    return _fill(y, {dim: int(op.get(2, "start")) % shape[dim]}, shape)


def _copied(one: OnBatch) -> Places:
    """Nothing of what is overwritten stays, but its dimensions."""
    return stays(one) if one.op.data_first else moves(one)


_EXPANDS: dict[str, Any] = {
    "role": Role.SHAPE,
    "again": lambda op, x, shape: x.expand(shape),
    "mask": moved_by(lambda mark, shape: mark.expand(shape)),
}


@register(Tensor.copy_, **_EXPANDS, batch=_copied)
@register(*forms("expand", "expand_as", "broadcast_to"), **_EXPANDS)
def expand(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Copies are averaged."""
    return unbroadcast(y, shape)


@register(*forms("repeat", "tile"), role=Role.SHAPE)
def repeat(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Copies are averaged."""
    x = y
    padded = (1,) * (y.dim() - len(shape)) + tuple(shape)
    for d, size in enumerate(padded):
        x = x.unflatten(d, (-1, size)).mean(d)
    return x.reshape(shape)


@register(*forms("repeat_interleave"), role=Role.SHAPE)
def repeat_interleave(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Copies are averaged, where every element was copied as often."""
    times, dim = op.get(1, "repeats"), op.get(2, "dim")
    if isinstance(times, Tensor) or dim is None:
        return adjoint(op, y, shape)
    dim = dim % len(shape)
    return y.unflatten(dim, (shape[dim], times)).mean(dim + 1)


def unbroadcast(y: Tensor, shape: Size) -> Tensor:
    """The mean over the dimensions in which ``shape`` was broadcast to y's."""
    extra = y.dim() - len(shape)
    dims = [d for d in range(y.dim()) if d < extra or (shape[d - extra] == 1 and y.shape[d] != 1)]
    return y.mean(dims, keepdim=True).reshape(shape) if dims else y


def _fill(y: Tensor, starts: dict[int, int], shape: Size) -> Tensor:
    """Zeros of ``shape`` with ``y`` at ``starts``."""
    pads: list[int] = []
    for d in range(len(shape) - 1, -1, -1):
        before = starts.get(d, 0)
        pads += [before, shape[d] - before - y.shape[d]]
    return F.pad(y, pads)


def _index(op: Operation) -> tuple[Any, ...]:
    index = op.args[1]
    return index if isinstance(index, tuple) else (index,)


def is_crop(index: Any) -> bool:
    """Whether an index only crops and adds dimensions: slices of step 1, ``...`` and ``None``."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None or part is Ellipsis or (isinstance(part, slice) and part.step in (None, 1)) for part in parts
    )


def _indexed(one: OnBatch) -> Places:
    """An index that is data picks from a table: the samples are where it stands, if all before it are slices."""
    path = one.op.at[0]
    if one.op.data_first:
        return moves(one)
    if one.x.dtype == torch.bool:
        return lost(one)
    if len(path) == 1:
        return stays(one)
    at = int(path[1])
    others = [part for i, part in enumerate(one.op.args[1]) if i != at]
    return stays(one, at) if all(part is None or isinstance(part, slice) for part in others) else lost(one)


@register(Tensor.__getitem__, role=Role.SHAPE, kind="crop", batch=_indexed)
def crop(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Slices of step 1: what was cut off comes back as zeros."""
    parts = list(_index(op))
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        missing = len(shape) - sum(part is not None for part in parts) + 1
        parts[at : at + 1] = [slice(None)] * missing
    slices = [part for part in parts if part is not None]
    starts = {d: part.indices(shape[d])[0] for d, part in enumerate(slices)}
    sizes = [len(range(*part.indices(shape[d]))) for d, part in enumerate(slices)]
    return _fill(y.reshape([*sizes, *shape[len(slices) :]]), starts, shape)


def _joined(one: OnMask) -> Tensor | None:
    """Side by side; constants, such as a class token, count."""
    given = dict(zip((path[-1] for path in one.paths), zip(one.marks, one.inputs, strict=True), strict=True))
    tensors = one.operation.get(0, "tensors")
    parts = [given.get(i, (None, part)) for i, part in enumerate(tensors)]
    some = next(mark for mark, _ in parts if mark is not None)
    dim = one.operation.get(1, "dim", 0) % some.dim()
    if all(mark is not None and mark.shape[dim] == 1 < x.shape[dim] for mark, x in parts):  # halves of channels
        return together([mark for mark, _ in parts])
    marks = [some.new_ones((1,) * some.dim()) if mark is None else mark for mark, _ in parts]
    sizes = [max(mark.shape[d] for mark in marks) for d in range(some.dim())]
    long = [
        mark.expand(*sizes[:dim], x.shape[dim], *sizes[dim + 1 :]) for mark, (_, x) in zip(marks, parts, strict=True)
    ]
    return torch.cat(long, dim)


@register(torch.cat, torch.concat, torch.concatenate, role=Role.SHAPE, kind="cat", mask=_joined)
def cat(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Beside constants or parameters (a class token): the data's own part is cut out."""
    (_, place), dim = op.at[0], op.get(1, "dim", 0) % len(shape)
    before = sum(part.shape[dim] for part in op.get(0, "tensors")[:place])
    return y.narrow(dim, before, shape[dim])

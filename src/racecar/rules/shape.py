"""Views, permutations, padding, cropping and selections; and what is skipped, such as dropout and casts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Size, Tensor
from torch.nn import functional as F

from racecar.rules.batch_dim import BatchDims, BatchedCall, moves, reshapes, stays, untracked
from racecar.rules.fallback import adjoint
from racecar.rules.mask_rules import MaskedOperation, compact, intersection, moved_by, unknown
from racecar.rules.operation import Operation
from racecar.rules.registry import register, register_plain
from racecar.rules.roles import Role
from racecar.rules.torch_functions import forms

_PASS = (
    "alpha_dropout bernoulli_dropout clone contiguous cpu cuda detach dropout dropout1d dropout2d dropout3d double "
    "fake_quantize_per_channel_affine fake_quantize_per_tensor_affine feature_alpha_dropout feature_dropout float "
    "fused_moving_avg_obs_fake_quant half bfloat16 positive requires_grad_ to type type_as"
)


def _embedding_mask(call: MaskedOperation) -> Tensor | None:
    """Mask rule of an embedding: the mask of the index, with a dimension for the features."""
    mask = call.masks[0]
    return mask.unsqueeze(-1) if mask is not None and len(call.masks) == 1 else None


register_plain(Role.PASS, *forms(_PASS))
register_plain(Role.SOURCE, F.embedding, mask=_embedding_mask)
register_plain(Role.SOURCE, F.embedding_bag)
_PARTS = forms("select chunk split unbind tensor_split unsafe_chunk unsafe_split split_with_sizes hsplit vsplit dsplit")
register_plain(Role.SELECT, *_PARTS)
register_plain(Role.SELECT, *forms("masked_select"))
register_plain(Role.SELECT, *forms("topk"), mask=unknown)


def _index_select_batch(call: BatchedCall) -> BatchDims:
    """Batch rule of ``index_select``: an index that is data stands at ``dim`` of the output."""
    return moves(call) if call.op.data_first else stays(call, call.op.get(1, "dim") % call.outputs[0][1].dim())


def _gather_batch(call: BatchedCall) -> BatchDims:
    """Batch rule of ``gather`` and ``take``: the output has the shape of the index."""
    return moves(call) if call.op.data_first else stays(call)


register_plain(Role.SELECT, *forms("index_select"), batch=_index_select_batch)
register_plain(Role.SELECT, *forms("gather take take_along_dim"), batch=_gather_batch)

PARTS = frozenset((*_PARTS, *forms("narrow"), Tensor.__getitem__))
"""Functions that return each element at most once, and so may return all of them."""


@register(
    *forms("flatten", "reshape", "view", "view_as", "reshape_as", "unflatten", "squeeze", "unsqueeze", "ravel"),
    role=Role.SHAPE,
    reapply=lambda op, x, shape: x.reshape(shape),
    batch=reshapes,
    mask=moved_by(lambda mask, shape: mask.reshape(shape)),
)
def reshape(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Reshaped to the input's shape; for all functions that keep the order of the elements."""
    return y.reshape(shape)


def _ints(op: Operation, position: int, name: str) -> tuple[int, ...]:
    """Sizes or dimensions that were passed one by one or as one sequence."""
    rest = op.args[position:]
    if rest and not isinstance(rest[0], int):
        return tuple(rest[0])
    return tuple(rest) if rest else tuple(op.kwargs[name])


@register(*forms("permute"), role=Role.SHAPE)
def permute(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The inverse permutation."""
    dims = [d % y.dim() for d in _ints(op, 1, "dims")]
    return y.permute([dims.index(d) for d in range(y.dim())])


@register(*forms("transpose", "swapaxes", "swapdims"), role=Role.SHAPE)
def transpose(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The same two dimensions swapped again."""
    first = op.get(1, "dim0", op.kwargs.get("axis0"))
    second = op.get(2, "dim1", op.kwargs.get("axis1"))
    return y.transpose(first, second)


@register(*forms("movedim", "moveaxis"), role=Role.SHAPE)
def movedim(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The dimensions moved back to their places."""
    return y.movedim(op.get(2, "destination"), op.get(1, "source"))


@register(*forms("t", "adjoint"), Tensor.mT.__get__, Tensor.mH.__get__, role=Role.SHAPE)  # type: ignore[attr-defined]
def matrix_transpose(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The last two dimensions swapped again."""
    return y.mT if y.dim() > 1 else y


@register(Tensor.T.__get__, Tensor.H.__get__, role=Role.SHAPE)  # type: ignore[attr-defined]
def reverse_dimensions(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """All dimensions in reverse order again."""
    return y.permute(*range(y.dim() - 1, -1, -1))


@register(*forms("pixel_shuffle"), role=Role.SHAPE)
def pixel_shuffle(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Pixel unshuffle: (N, C, H·r, W·r) → (N, C·r², H, W)."""
    return F.pixel_unshuffle(y, op.get(1, "upscale_factor"))


@register(*forms("pixel_unshuffle"), role=Role.SHAPE)
def pixel_unshuffle(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Pixel shuffle: (N, C·r², H, W) → (N, C, H·r, W·r)."""
    return F.pixel_shuffle(y, op.get(1, "downscale_factor"))


@register(*forms("channel_shuffle", "native_channel_shuffle"), role=Role.SHAPE)
def channel_shuffle(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """A shuffle of C channels in C/g groups undoes one in g groups."""
    return F.channel_shuffle(y, shape[1] // op.get(1, "groups"))


def _pad_mask(call: MaskedOperation) -> Tensor | None:
    """Mask rule of ``pad``: the mask is padded, as float, because torch cannot reflect bool."""
    mask, operation = call.masks[0], call.operation
    if mask is None or not operation.data_first:
        return None
    return compact(operation(mask.expand(call.inputs[0].shape).float()) != 0)


@register(*forms("pad"), role=Role.SHAPE, keeps_axes=True, mask=_pad_mask)
def pad(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Padding of any mode is cropped; where ``pad`` cropped, zeros are filled in."""
    return F.pad(y, [-n for n in op.get(1, "pad")])


@register(*forms("flip"), role=Role.SHAPE, keeps_axes=True)
def flip(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Flipped along the same dimensions again."""
    return y.flip(_ints(op, 1, "dims"))


@register(*forms("roll"), role=Role.SHAPE, keeps_axes=True)
def roll(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Rolled by the same number of positions in the other direction."""
    shifts = op.get(1, "shifts")
    back = -shifts if isinstance(shifts, int) else tuple(-s for s in shifts)
    dims = op.get(2, "dims", ())
    return y.roll(back, () if dims is None else dims)


@register(*forms("narrow"), role=Role.SHAPE, keeps_axes=True)
def narrow(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Zeros for what was cut off."""
    dim = op.get(1, "dim") % len(shape)
    return _fill(y, {dim: int(op.get(2, "start")) % shape[dim]}, shape)


def _copy_batch(call: BatchedCall) -> BatchDims:
    """Batch rule of ``a.copy_(b)``: as b, or where a is the data, as a."""
    return stays(call) if call.op.data_first else moves(call)


_EXPANDS: dict[str, Any] = {
    "role": Role.SHAPE,
    "reapply": lambda op, x, shape: x.expand(shape),
    "mask": moved_by(lambda mask, shape: mask.expand(shape)),
}


@register(Tensor.copy_, **_EXPANDS, batch=_copy_batch)
@register(*forms("expand", "expand_as", "broadcast_to"), **_EXPANDS)
def expand(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The mean of the copies."""
    return unbroadcast(y, shape)


@register(*forms("repeat", "tile"), role=Role.SHAPE)
def repeat(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The mean of the copies."""
    x = y
    padded = (1,) * (y.dim() - len(shape)) + tuple(shape)
    for d, size in enumerate(padded):
        x = x.unflatten(d, (-1, size)).mean(d)
    return x.reshape(shape)


@register(*forms("repeat_interleave"), role=Role.SHAPE)
def repeat_interleave(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The mean of the copies, if every element was copied equally often."""
    times, dim = op.get(1, "repeats"), op.get(2, "dim")
    if isinstance(times, Tensor) or dim is None:
        return adjoint(op, y, shape)
    dim = dim % len(shape)
    return y.unflatten(dim, (shape[dim], times)).mean(dim + 1)


def unbroadcast(y: Tensor, shape: Size) -> Tensor:
    """The mean of y over the dimensions in which ``shape`` was broadcast to the shape of y."""
    extra = y.dim() - len(shape)
    dims = [d for d in range(y.dim()) if d < extra or (shape[d - extra] == 1 and y.shape[d] != 1)]
    return y.mean(dims, keepdim=True).reshape(shape) if dims else y


def _fill(y: Tensor, starts: dict[int, int], shape: Size) -> Tensor:
    """Zeros of ``shape`` that contain ``y`` from the indices ``starts`` on, given per dimension (default 0)."""
    pads: list[int] = []
    for d in range(len(shape) - 1, -1, -1):
        before = starts.get(d, 0)
        pads += [before, shape[d] - before - y.shape[d]]
    return F.pad(y, pads)


def index_parts(index: Any) -> tuple[Any, ...]:
    """An index as a tuple with one part per dimension, ``...`` or ``None``: x[0] is x[(0,)]."""
    return index if isinstance(index, tuple) else (index,)


def is_crop(index: Any) -> bool:
    """Whether an index only crops and adds dimensions: slices of step 1, ``...`` and ``None``."""
    return all(
        part is None or part is Ellipsis or (isinstance(part, slice) and part.step in (None, 1))
        for part in index_parts(index)
    )


def _index_batch(call: BatchedCall) -> BatchDims:
    """Batch rule of indexing: an index that is data has the samples in its place, if all others are slices."""
    path = call.op.at[0]
    if call.op.data_first:
        return moves(call)
    if call.x.dtype == torch.bool:
        return untracked(call)
    if len(path) == 1:
        return stays(call)
    at = int(path[1])
    others = [part for i, part in enumerate(call.op.args[1]) if i != at]
    return stays(call, at) if all(part is None or isinstance(part, slice) for part in others) else untracked(call)


@register(Tensor.__getitem__, role=Role.SHAPE, kind="crop", batch=_index_batch)
def crop(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Slices of step 1: zeros for what was cut off."""
    parts = list(index_parts(op.args[1]))
    if Ellipsis in parts:
        at = parts.index(Ellipsis)
        missing = len(shape) - sum(part is not None for part in parts) + 1
        parts[at : at + 1] = [slice(None)] * missing
    slices = [part for part in parts if part is not None]
    starts = {d: part.indices(shape[d])[0] for d, part in enumerate(slices)}
    sizes = [len(range(*part.indices(shape[d]))) for d, part in enumerate(slices)]
    return _fill(y.reshape([*sizes, *shape[len(slices) :]]), starts, shape)


def _cat_mask(call: MaskedOperation) -> Tensor | None:
    """Mask rule of ``cat``: the masks are concatenated; constants, such as a class token, count."""
    data = dict(zip((path[-1] for path in call.paths), zip(call.masks, call.inputs, strict=True), strict=True))
    parts = [data.get(i, (None, part)) for i, part in enumerate(call.operation.get(0, "tensors"))]
    like = next(mask for mask, _ in parts if mask is not None)
    dim = call.operation.get(1, "dim", 0) % like.dim()
    if all(mask is not None and mask.shape[dim] == 1 < x.shape[dim] for mask, x in parts):  # along the features
        return intersection([mask for mask, _ in parts])
    masks = [like.new_ones((1,) * like.dim()) if mask is None else mask for mask, _ in parts]
    sizes = [max(mask.shape[d] for mask in masks) for d in range(like.dim())]
    expanded = [
        mask.expand(*sizes[:dim], x.shape[dim], *sizes[dim + 1 :]) for mask, (_, x) in zip(masks, parts, strict=True)
    ]
    return torch.cat(expanded, dim)


@register(
    torch.cat, torch.concat, torch.concatenate, role=Role.SHAPE, kind="cat", constants_per_sample=True, mask=_cat_mask
)
def cat(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Concatenation with constants or parameters (a class token): the part of the data is cut out."""
    (_, place), dim = op.at[0], op.get(1, "dim", 0) % len(shape)
    before = sum(part.shape[dim] for part in op.get(0, "tensors")[:place])
    return y.narrow(dim, before, shape[dim])

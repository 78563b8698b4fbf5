"""Convolutions: the reverse pass is the transposed convolution with the same kernel, and the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Size, Tensor
from torch.nn import functional as F

from racecar.rules.context import StepMasks
from racecar.rules.linear import like, minus, without_bias
from racecar.rules.marks import OnMask, fit, mixed
from racecar.rules.operation import Operation
from racecar.rules.registry import register

_CONV = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


def each(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    """One number for each dimension of the kernel."""
    if isinstance(value, int):
        return (value,) * dims
    values = tuple(value)
    return values * dims if len(values) == 1 else values


def _without_bias(y: Tensor, op: Operation, dims: int, filled: bool = False) -> Tensor:
    """y − b; with a mask, nothing of padding reaches the positions beside it. ``filled``: beyond the positions of its
    input y was cut off and is 0 again, from which b is taken; so it is where padding stands."""
    bias: Tensor | None = op.get(2, "bias")
    mask = op.context.mask
    if filled and mask is not None:
        y = y * mask
    y = y if bias is None else minus(y, bias.view(-1, *(1,) * dims))
    return y if mask is None or filled else y * mask


def whole_padding(op: Operation) -> tuple[int, ...]:
    """How many positions a convolution adds that pads by its whole kernel on both sides; (0, …) for any other."""
    weight: Tensor = op.get(1, "weight")
    dims, padding = weight.dim() - 2, op.get(4, "padding", 0)
    reach = tuple(d * (k - 1) for d, k in zip(each(op.get(5, "dilation", 1), dims), weight.shape[2:], strict=True))
    by_one = all(one == 1 for one in each(op.get(3, "stride", 1), dims))
    return reach if by_one and not isinstance(padding, str) and each(padding, dims) == reach else (0,) * dims


def arguments(op: Operation) -> tuple[Any, ...]:
    """Weight, stride, padding, dilation and groups of a convolution."""
    if len(op.args) == 7:  # as modules give them: less for torch.compile to trace
        _, weight, _, stride, padding, dilation, groups = op.args
        return weight, stride, padding, dilation, groups
    rest = op.get(4, "padding", 0), op.get(5, "dilation", 1), op.get(6, "groups", 1)
    return op.get(1, "weight"), op.get(3, "stride", 1), *rest


def _crop(x: Tensor, shape: Size, dims: int) -> Tensor:
    for d in range(-dims, 0):
        x = x.narrow(d, 0, shape[d])
    return x


def _over_positions(op: Operation, masks: StepMasks) -> Tensor | None:
    """A kernel of one position mixes no others."""
    return masks.output() if op.get(1, "weight").shape[2:].numel() > 1 else None


def _of_conv(one: OnMask) -> Tensor | None:
    """Positions keep their places where there are as many as before, or were before padding; or where those that a
    padding of the whole kernel adds are cut off at the end again, so that what is made at t is of positions up to t."""
    if len(one.marks) > 1:
        return None
    dims = one.operation.get(1, "weight").dim() - 2
    mark = one.marks[0] if (before := one.unpadded(dims)) is None else before
    assert mark is not None
    (x,) = one.inputs
    added = [new - old for old, new in zip(x.shape[-dims:], one.shape[-dims:], strict=True)]
    if any(added) and one.is_cut():
        longer = [n if mark.shape[d - dims] > 1 else 0 for d, n in enumerate(added)]
        mark = F.pad(mark, [n for more in longer[::-1] for n in (0, more)])
    return fit(mixed(mark, [-dims - 1]), one.shape)


_POSITIONS: dict[str, Any] = {"mask": _of_conv, "takes_mask": _over_positions, "linear": without_bias}


@register(F.conv1d, kind="conv1d", **_POSITIONS)
@register(F.conv2d, kind="conv2d", **_POSITIONS)
@register(F.conv3d, kind="conv3d", **_POSITIONS)
def conv(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """y (N, out, …), weight (out, in/groups, k…) → (N, in, …) of the true input size."""
    weight, stride, padding, dilation, groups = arguments(op)
    dims, kernel = weight.dim() - 2, weight.shape[2:]
    stride, dilation = each(stride, dims), each(dilation, dims)
    if padding == "same":  # an even kernel pads one more at the end
        before = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    else:
        before = (0,) * dims if padding == "valid" else each(padding, dims)
    masked = op.context.mask is not None
    longer = masked and any(out > size for out, size in zip(y.shape[-dims:], shape[-dims:], strict=True))
    y = _without_bias(like(y, weight), op, dims, filled=longer)
    if padding != "same" and stride == (1,) * dims:  # nothing is left over
        return _TRANSPOSED[dims](y, weight, None, stride, before, 0, groups, dilation)
    # What the strides left over at the end of the true input; negative where "same" padded more at the end.
    left_over = [
        size - ((out - 1) * s - 2 * b + d * (k - 1) + 1)
        for size, out, s, b, d, k in zip(shape[-dims:], y.shape[-dims:], stride, before, dilation, kernel, strict=True)
    ]
    output_padding = [max(0, n) for n in left_over]
    x = _TRANSPOSED[dims](y, weight, None, stride, before, output_padding, groups, dilation)
    if any(n < 0 for n in left_over):
        x = _crop(x, shape, dims)
    return x


@register(F.conv_transpose1d, kind="conv_transpose1d", **_POSITIONS)
@register(F.conv_transpose2d, kind="conv_transpose2d", **_POSITIONS)
@register(F.conv_transpose3d, kind="conv_transpose3d", **_POSITIONS)
def conv_transpose(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """y (N, out, …), weight (in, out/groups, k…) → (N, in, …)."""
    weight: Tensor = op.get(1, "weight")
    dims = weight.dim() - 2
    stride, padding = op.get(3, "stride", 1), op.get(4, "padding", 0)
    groups, dilation = op.get(6, "groups", 1), op.get(7, "dilation", 1)
    y = _without_bias(like(y, weight), op, dims)
    x = _CONV[dims](y, weight, None, stride, padding, dilation, groups)
    if x.shape[-dims:] != shape[-dims:]:  # an output padding beyond the stride, which a dilation allows
        x = _crop(x, shape, dims)
    return x


def fold_padding(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The adjoint of padding: what was copied to the border is added back to where it came from.

    Used for the reflect, replicate and circular padding of a convolution, which is part of the layer.
    """
    pads, mode = op.get(1, "pad"), op.get(2, "mode", "constant")
    for i in range(len(pads) // 2):
        dim, before, size = len(shape) - 1 - i, pads[2 * i], shape[len(shape) - 1 - i]
        place = torch.arange(y.shape[dim], device=y.device) - before
        if mode == "circular":
            place = place % size
        elif mode == "reflect":
            place = place.abs()
            place = (size - 1) - (size - 1 - place).abs()
        elif mode == "replicate":
            place = place.clamp(0, size - 1)
        else:
            raise ValueError(f"no adjoint of padding mode {mode!r}")
        rest = list(y.shape)
        rest[dim] = size
        y = y.new_zeros(rest).index_add(dim, place, y)
    return y

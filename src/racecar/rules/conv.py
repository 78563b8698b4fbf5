"""Convolutions, undone by the transposed convolution with the same kernel; transposed ones by the convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Size, Tensor
from torch.nn import functional as F

from racecar.rules.context import StepMasks
from racecar.rules.linear import like, minus, without_bias
from racecar.rules.mask_rules import MaskedOperation, any_along, fit
from racecar.rules.operation import Operation
from racecar.rules.registry import register

_CONV = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


def per_dimension(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    """An argument such as ``stride`` as one number for each of ``dims`` dimensions."""
    if isinstance(value, int):
        return (value,) * dims
    values = tuple(value)
    return values * dims if len(values) == 1 else values


def _subtract_bias(y: Tensor, op: Operation, dims: int, causal: bool = False) -> Tensor:
    """y − b, with 0 where the mask says padding, so that padding does not reach the positions beside it.

    In a causal convolution padding is −b instead: there the positions at the end, which the forward pass cut off, are 0
    before b is subtracted, and padding is to be the same as those.
    """
    bias: Tensor | None = op.get(2, "bias")
    mask = op.context.mask
    if causal and mask is not None:
        y = y * mask
    y = y if bias is None else minus(y, bias.view(-1, *(1,) * dims))
    return y if mask is None or causal else y * mask


def whole_padding(op: Operation) -> tuple[int, ...]:
    """Positions that a convolution adds by padding its whole kernel on both sides, per dimension; 0 if it does not."""
    weight: Tensor = op.get(1, "weight")
    dims, padding = weight.dim() - 2, op.get(4, "padding", 0)
    reach = tuple(
        d * (k - 1) for d, k in zip(per_dimension(op.get(5, "dilation", 1), dims), weight.shape[2:], strict=True)
    )
    no_stride = all(step == 1 for step in per_dimension(op.get(3, "stride", 1), dims))
    return (
        reach if no_stride and not isinstance(padding, str) and per_dimension(padding, dims) == reach else (0,) * dims
    )


def arguments(op: Operation) -> tuple[Any, ...]:
    """Weight, stride, padding, dilation and groups of a convolution."""
    if len(op.args) == 7:  # as modules pass them: less for torch.compile to trace
        _, weight, _, stride, padding, dilation, groups = op.args
        return weight, stride, padding, dilation, groups
    rest = op.get(4, "padding", 0), op.get(5, "dilation", 1), op.get(6, "groups", 1)
    return op.get(1, "weight"), op.get(3, "stride", 1), *rest


def _crop(x: Tensor, shape: Size, dims: int) -> Tensor:
    for d in range(-dims, 0):
        x = x.narrow(d, 0, shape[d])
    return x


def _kernel_mask(op: Operation, masks: StepMasks) -> Tensor | None:
    """``Rule.takes_mask``: the mask of the output, unless the kernel has one position and mixes none."""
    return masks.output() if op.get(1, "weight").shape[2:].numel() > 1 else None


def _conv_mask(call: MaskedOperation) -> Tensor | None:
    """Mask rule of convolutions: positions keep their places.

    That holds if their number stays the same, or is that before an explicit ``pad``; and in a causal convolution, whose
    additional positions are cut off at the end, so that output t depends on positions up to t.
    """
    if len(call.masks) > 1:
        return None
    dims = call.operation.get(1, "weight").dim() - 2
    mask = call.masks[0] if (before := call.unpadded(dims)) is None else before
    assert mask is not None
    (x,) = call.inputs
    added = [new - old for old, new in zip(x.shape[-dims:], call.shape[-dims:], strict=True)]
    if any(added) and call.is_cut():
        added = [n if mask.shape[d - dims] > 1 else 0 for d, n in enumerate(added)]
        mask = F.pad(mask, [n for after in added[::-1] for n in (0, after)])
    return fit(any_along(mask, [-dims - 1]), call.shape)


_FIELDS: dict[str, Any] = {"mask": _conv_mask, "takes_mask": _kernel_mask, "linear": without_bias}


@register(F.conv1d, kind="conv1d", **_FIELDS)
@register(F.conv2d, kind="conv2d", **_FIELDS)
@register(F.conv3d, kind="conv3d", **_FIELDS)
def conv(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """y (N, out, …), weight (out, in/groups, k…) → (N, in, …) of the size of the forward pass."""
    weight, stride, padding, dilation, groups = arguments(op)
    dims, kernel = weight.dim() - 2, weight.shape[2:]
    stride, dilation = per_dimension(stride, dims), per_dimension(dilation, dims)
    if padding == "same":  # with an even kernel one more at the end
        before = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
    else:
        before = (0,) * dims if padding == "valid" else per_dimension(padding, dims)
    masked = op.context.mask is not None
    longer = masked and any(out > size for out, size in zip(y.shape[-dims:], shape[-dims:], strict=True))
    y = _subtract_bias(like(y, weight), op, dims, causal=longer)
    if padding != "same" and stride == (1,) * dims:  # the sizes match without output padding
        return _TRANSPOSED[dims](y, weight, None, stride, before, 0, groups, dilation)
    # Positions at the end of the input that no stride reached; negative where "same" padded more at the end.
    unreached = [
        size - ((out - 1) * s - 2 * b + d * (k - 1) + 1)
        for size, out, s, b, d, k in zip(shape[-dims:], y.shape[-dims:], stride, before, dilation, kernel, strict=True)
    ]
    output_padding = [max(0, n) for n in unreached]
    x = _TRANSPOSED[dims](y, weight, None, stride, before, output_padding, groups, dilation)
    if any(n < 0 for n in unreached):
        x = _crop(x, shape, dims)
    return x


@register(F.conv_transpose1d, kind="conv_transpose1d", **_FIELDS)
@register(F.conv_transpose2d, kind="conv_transpose2d", **_FIELDS)
@register(F.conv_transpose3d, kind="conv_transpose3d", **_FIELDS)
def conv_transpose(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """y (N, out, …), weight (in, out/groups, k…) → (N, in, …)."""
    weight: Tensor = op.get(1, "weight")
    dims = weight.dim() - 2
    stride, padding = op.get(3, "stride", 1), op.get(4, "padding", 0)
    groups, dilation = op.get(6, "groups", 1), op.get(7, "dilation", 1)
    y = _subtract_bias(like(y, weight), op, dims)
    x = _CONV[dims](y, weight, None, stride, padding, dilation, groups)
    if x.shape[-dims:] != shape[-dims:]:  # with a dilation, output padding may be larger than the stride
        x = _crop(x, shape, dims)
    return x


def fold_padding(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The adjoint of padding: each value at the border is added to the position that it was copied from.

    For the reflect, replicate and circular padding of a convolution, which is part of its linear map.
    """
    pads, mode = op.get(1, "pad"), op.get(2, "mode", "constant")
    for i in range(len(pads) // 2):
        dim, before, size = len(shape) - 1 - i, pads[2 * i], shape[len(shape) - 1 - i]
        source = torch.arange(y.shape[dim], device=y.device) - before
        if mode == "circular":
            source = source % size
        elif mode == "reflect":
            source = source.abs()
            source = (size - 1) - (size - 1 - source).abs()
        elif mode == "replicate":
            source = source.clamp(0, size - 1)
        else:
            raise ValueError(f"no adjoint of padding mode {mode!r}")
        cropped = list(y.shape)
        cropped[dim] = size
        y = y.new_zeros(cropped).index_add(dim, source, y)
    return y

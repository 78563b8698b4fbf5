"""Changes of resolution: pooling is undone by up-sampling to the input's size, up-sampling by averaging."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Size, Tensor
from torch.nn import functional as F

from racecar.rules.activation import FIXED_OPERAND
from racecar.rules.context import of_input
from racecar.rules.operation import Operation, reduced_dims
from racecar.rules.registry import Rule, register
from racecar.rules.roles import Role
from racecar.rules.torch_functions import forms
from racecar.support.compiling import compiling
from racecar.support.memory_order import memory_order

_AVERAGE: dict[int, Any] = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def _spatial(y: Tensor, shape: Size, dims: int, mode: str) -> Tensor:
    """``y`` with its last ``dims`` dimensions resized to those of ``shape``; ``y`` may lack a batch dimension."""
    size, old = list(shape[-dims:]), list(y.shape[-dims:])
    if old == size:
        return y
    integer = all(new % before == 0 for new, before in zip(size, old, strict=True))
    if mode == "nearest" and integer and (y.is_cuda or compiling()):
        return repeated(y, size)
    batched = y if y.dim() == dims + 2 else y.unsqueeze(0)
    x = F.interpolate(batched, size=size, mode="nearest") if mode == "nearest" else _AVERAGE[dims](batched, size)
    return x if y.dim() == dims + 2 else x.squeeze(0)


def repeated(y: Tensor, size: list[int]) -> Tensor:
    """Nearest up-sampling by an integer factor: y (…, smaller size) → (…, size).

    F.interpolate computes the same, on a CPU in a tenth of the time, but on a GPU in twice the time. A compiler turns
    F.interpolate into indexing, whose gradient (atomic additions) took a tenth of a training step of VGG19.
    """
    dims, shape = memory_order(y), [*y.shape[: y.dim() - len(size)], *size]
    wide = y.permute(dims)
    for i in range(y.dim()):
        wide = wide.unsqueeze(2 * i + 1)
    times = [length for dim in dims for length in (y.shape[dim], shape[dim] // max(1, y.shape[dim]))]
    result = wide.expand(times).contiguous().reshape([shape[dim] for dim in dims])
    return result.permute([dims.index(dim) for dim in range(y.dim())])


def _names(dims: int) -> list[str]:
    """The names of all pooling functions with this number of dimensions."""
    return [
        f"{name}{dims}d{ending}"
        for name in ("max_pool", "avg_pool", "lp_pool", "adaptive_max_pool", "adaptive_avg_pool", "fractional_max_pool")
        for ending in ("", "_with_indices")
    ]


def _unpool(dims: int) -> Callable[[Operation, Tensor, Size], Tensor]:
    """The rule of all pooling functions with this number of dimensions."""

    def unpool(op: Operation, y: Tensor, shape: Size) -> Tensor:
        """Nearest up-sampling to the input's size: y (N, C, …) → ``shape``."""
        return _spatial(y, shape, dims, "nearest")

    return unpool


for _dims in (1, 2, 3):
    register(*forms(*_names(_dims)), role=Role.RESAMPLE, kind=f"pool{_dims}d")(_unpool(_dims))


@register(*forms("interpolate", "upsample", "upsample_nearest", "upsample_bilinear"), role=Role.RESAMPLE)
def interpolate(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Averages to the input's size after up-sampling; nearest up-sampling to it after down-sampling."""
    shrunk = all(new <= old for new, old in zip(y.shape[2:], shape[2:], strict=True))
    return _spatial(y, shape, len(shape) - 2, "nearest" if shrunk else "average")


def _lift(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Gives dimensions that a reduction dropped back with size 1: (N, C) → (N, C, 1, 1)."""
    if y.dim() == len(shape):
        return y
    dropped = reduced_dims(op, len(shape))
    sizes = iter(y.shape)
    return y.reshape([1 if d in dropped else next(sizes) for d in range(len(shape))])


def _of_two_tensors(op: Operation) -> Rule | None:
    """``Rule.variant`` of ``max`` and ``min``: with a second tensor they reduce nothing."""
    return FIXED_OPERAND if isinstance(op.get(1, "other"), Tensor) else None


@register(*forms("mean", "amax", "amin"), role=Role.RESAMPLE, lift=_lift, reduction=True)
@register(*forms("max", "min", "median", "nanmean"), role=Role.RESAMPLE, lift=_lift, variant=_of_two_tensors)
def reduce(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """A global mean or maximum is broadcast: y (N, C) → (N, C, H, W)."""
    return _lift(op, y, shape).expand(shape)


@register(*forms("sum"), role=Role.RESAMPLE, lift=_lift, reduction=True, takes_mask=of_input)
def total(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """A sum is distributed evenly over its terms; with a mask, over those that count."""
    lifted = _lift(op, y, shape)
    mask = op.context.mask
    if mask is None:
        return lifted.expand(shape) * (lifted.numel() / shape.numel())
    summed = [d for d, length in enumerate(lifted.shape) if length < shape[d]]
    expanded = math.prod(shape[d] for d in summed if mask.shape[d] == 1)
    count = mask.sum(summed, keepdim=True).clamp(min=1) * expanded
    return (lifted / count.to(y.dtype)).expand(shape)

"""Changes of resolution: what was pooled is up-sampled to the true size, what was up-sampled is averaged."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Size, Tensor
from torch.nn import functional as F

from racecar.rules.context import of_input
from racecar.rules.operation import Operation, reduced_dims
from racecar.rules.registry import register
from racecar.rules.roles import Role
from racecar.rules.torch_functions import forms
from racecar.support.compiling import compiling
from racecar.support.memory_order import memory_order

_AVERAGE: dict[int, Any] = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def _spatial(y: Tensor, shape: Size, dims: int, mode: str) -> Tensor:
    """Resize the last ``dims`` dimensions of ``y`` to those of ``shape``; a missing batch dimension is allowed."""
    size, old = list(shape[-dims:]), list(y.shape[-dims:])
    if old == size:
        return y
    whole = all(new % few == 0 for new, few in zip(size, old, strict=True))
    if mode == "nearest" and whole and (y.is_cuda or compiling()):
        return repeated(y, size)
    batched = y if y.dim() == dims + 2 else y.unsqueeze(0)
    x = F.interpolate(batched, size=size, mode="nearest") if mode == "nearest" else _AVERAGE[dims](batched, size)
    return x if y.dim() == dims + 2 else x.squeeze(0)


def repeated(y: Tensor, size: list[int]) -> Tensor:
    """Nearest up-sampling by whole numbers: y (…, few) → (…, size).

    F.interpolate does the same, on a GPU in twice the time (on a CPU in a tenth); and a compiler takes it apart into
    reading by index, whose gradient, adding by index with atomic operations, took a tenth of a VGG19's step.
    """
    dims, shape = memory_order(y), [*y.shape[: y.dim() - len(size)], *size]
    wide = y.permute(dims)
    for i in range(y.dim()):
        wide = wide.unsqueeze(2 * i + 1)
    times = [length for dim in dims for length in (y.shape[dim], shape[dim] // max(1, y.shape[dim]))]
    made = wide.expand(times).contiguous().reshape([shape[dim] for dim in dims])
    return made.permute([dims.index(dim) for dim in range(y.dim())])


def _names(dims: int) -> list[str]:
    return [
        f"{name}{dims}d{ending}"
        for name in ("max_pool", "avg_pool", "lp_pool", "adaptive_max_pool", "adaptive_avg_pool", "fractional_max_pool")
        for ending in ("", "_with_indices")
    ]


def _unpool(dims: int) -> Callable[[Operation, Tensor, Size], Tensor]:
    def unpool(op: Operation, y: Tensor, shape: Size) -> Tensor:
        """Nearest up-sampling to the true size: y (N, C, …) → ``shape``."""
        return _spatial(y, shape, dims, "nearest")

    return unpool


for _dims in (1, 2, 3):
    register(*forms(*_names(_dims)), role=Role.RESAMPLE, kind=f"pool{_dims}d")(_unpool(_dims))


@register(*forms("interpolate", "upsample", "upsample_nearest", "upsample_bilinear"), role=Role.RESAMPLE)
def interpolate(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Averages down to the true size after up-sampling, nearest up to it after down-sampling."""
    shrunk = all(new <= old for new, old in zip(y.shape[2:], shape[2:], strict=True))
    return _spatial(y, shape, len(shape) - 2, "nearest" if shrunk else "average")


def _lift(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Bring removed dimensions back with size 1: (N, C) → (N, C, 1, 1)."""
    if y.dim() == len(shape):
        return y
    gone = reduced_dims(op, len(shape))
    sizes = iter(y.shape)
    return y.reshape([1 if d in gone else next(sizes) for d in range(len(shape))])


@register(*forms("mean", "amax", "amin"), role=Role.RESAMPLE, lift=_lift, reduction=True)
@register(*forms("max", "min", "median", "nanmean"), role=Role.RESAMPLE, lift=_lift)
def reduce(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """A global mean or maximum is broadcast: y (N, C) → (N, C, H, W)."""
    return _lift(op, y, shape).expand(shape)


@register(*forms("sum"), role=Role.RESAMPLE, lift=_lift, reduction=True, takes_mask=of_input)
def total(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """A sum is shared out evenly; with a mask, among what counts."""
    lifted = _lift(op, y, shape)
    mask = op.context.mask
    if mask is None:
        return lifted.expand(shape) * (lifted.numel() / shape.numel())
    gone = [d for d, few in enumerate(lifted.shape) if few < shape[d]]
    alike = math.prod(shape[d] for d in gone if mask.shape[d] == 1)
    count = mask.sum(gone, keepdim=True).clamp(min=1) * alike
    return (lifted / count.to(y.dtype)).expand(shape)

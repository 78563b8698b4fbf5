"""Norms that leave padding out of their statistics."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Standardised(NamedTuple):
    """Standardised data, and the statistics that it was standardised by."""

    out: Tensor
    """All positions, without scale and shift."""
    mean: Tensor
    inverse: Tensor
    """1/√(σ² + eps)."""
    size: Tensor
    """Number of values in each statistic, at least 1."""


def standardise(x: Tensor, mask: Tensor, dims: list[int], eps: float) -> Standardised:
    """(x − mean) / σ over ``dims``. The statistics are those of the positions that count, in float32 at least.

    Args:
        mask: bool, True where x counts; as many dimensions as x, each as long or 1.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    expanded = 1
    for d in dims:
        expanded *= x.shape[d] if mask.shape[d] == 1 else 1
    count = (mask.to(wide.dtype).sum(dims, keepdim=True) * expanded).clamp(min=1)
    mean = (wide * mask).sum(dims, keepdim=True) / count
    centred = wide - mean
    inverse = torch.rsqrt((centred * mask).square().sum(dims, keepdim=True) / count + eps)
    return Standardised(centred * inverse, mean, inverse, count)


def scaled(out: Tensor, weight: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """out (N, C, …) with scale and shift per channel, converted to ``dtype``."""
    channels = (1, -1, *(1,) * (out.dim() - 2))
    out = out if weight is None else out * weight.view(channels)
    return (out if bias is None else out + bias.view(channels)).to(dtype)


def in_groups(x: Tensor, mask: Tensor, groups: int, eps: float) -> Tensor:
    """A group norm of x (N, C, …), without scale and shift."""
    grouped = x.unflatten(1, (groups, -1))
    mask = mask.unsqueeze(2) if mask.shape[1] == 1 else mask.unflatten(1, (groups, -1))
    return standardise(grouped, mask, list(range(2, grouped.dim())), eps).out.flatten(1, 2)


def over_last(x: Tensor, mask: Tensor, count: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """A layer norm over the last ``count`` dimensions of x."""
    out = standardise(x, mask, list(range(x.dim() - count, x.dim())), eps).out
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(x.dtype)

"""Norms by the statistics of the positions that count: padding has none."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Masked(NamedTuple):
    """A norm of some positions."""

    out: Tensor
    """Of all positions, without scale and shift."""
    mean: Tensor
    inverse: Tensor
    """1/σ, with eps added to σ²."""
    size: Tensor
    """Values that the statistics are of, at least 1."""


def standardise(x: Tensor, mask: Tensor, dims: list[int], eps: float) -> Masked:
    """(x − mean) / σ over ``dims``, the statistics in float32 at least and of what ``mask`` lets count.

    Args:
        mask: bool, as many dimensions as x, each as long or 1.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    alike = 1
    for d in dims:
        alike *= x.shape[d] if mask.shape[d] == 1 else 1
    count = (mask.to(wide.dtype).sum(dims, keepdim=True) * alike).clamp(min=1)
    mean = (wide * mask).sum(dims, keepdim=True) / count
    centred = wide - mean
    inverse = torch.rsqrt((centred * mask).square().sum(dims, keepdim=True) / count + eps)
    return Masked(centred * inverse, mean, inverse, count)


def scaled(out: Tensor, weight: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Scale and shift of each channel of out (N, C, …)."""
    form = (1, -1, *(1,) * (out.dim() - 2))
    out = out if weight is None else out * weight.view(form)
    return (out if bias is None else out + bias.view(form)).to(dtype)


def in_groups(x: Tensor, mask: Tensor, groups: int, eps: float) -> Tensor:
    """x (N, C, …), each sample's channels in groups that share their statistics; without scale and shift."""
    apart = x.unflatten(1, (groups, -1))
    mask = mask.unsqueeze(2) if mask.shape[1] == 1 else mask.unflatten(1, (groups, -1))
    return standardise(apart, mask, list(range(2, apart.dim())), eps).out.flatten(1, 2)


def over_last(x: Tensor, mask: Tensor, count: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """A layer norm over the last ``count`` dimensions of x."""
    out = standardise(x, mask, list(range(x.dim() - count, x.dim())), eps).out
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias).to(x.dtype)

"""Slant and stroke width of digits, from the moments of their ink."""

from __future__ import annotations

import torch
from torch import Tensor


def slant(x: Tensor) -> Tensor:
    """The slant of pictures (N, 1, H, W), (N,): by how many pixels the ink leans to the right for each pixel upwards.
    It is −Σ p (x − x̄)(y − ȳ) / Σ p (y − ȳ)², with y downwards; 0 for ink in a single row."""
    _, _, down, mixed = _moments(x)
    return torch.where(down > 0, -mixed / torch.where(down > 0, down, 1), 0)


def stroke_width(x: Tensor) -> Tensor:
    """The stroke width of pictures (N, 1, H, W), (N,): ink over √12 · the radius of gyration, in pixels. For a thin bar
    that is its width, because its radius of gyration is its length / √12."""
    ink, across, down, _ = _moments(x)
    gyration = (across + down).sqrt()
    return torch.where(gyration > 0, ink / (12**0.5 * torch.where(gyration > 0, gyration, 1)), 0)


def _moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ink Σ p, and the means over it of (x − x̄)², (y − ȳ)² and (x − x̄)(y − ȳ), (N,) each."""
    p = x[:, 0].double()
    rows, columns = (torch.arange(size, device=x.device, dtype=p.dtype) for size in p.shape[1:])
    ink = p.sum((1, 2))
    share = p / torch.where(ink > 0, ink, 1).view(-1, 1, 1)
    by_row, by_column = share.sum(2), share.sum(1)
    y = rows - (by_row @ rows).unsqueeze(1)
    x_ = columns - (by_column @ columns).unsqueeze(1)
    mixed = torch.einsum("nij,ni,nj->n", share, y, x_)
    return ink, (by_column * x_.square()).sum(1), (by_row * y.square()).sum(1), mixed

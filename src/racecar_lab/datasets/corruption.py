"""Corruptions of pictures: noise, blur and less contrast (similar to Hendrycks and Dietterich 2019).

All functions take and return pictures (N, C, H, W) with pixels in [0, 1], and treat each picture by itself.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def noise(pictures: Tensor, sd: float, generator: torch.Generator) -> Tensor:
    """Add Gaussian noise of standard deviation ``sd``, and clip the sum to [0, 1]. The noise is drawn on the device of
    the generator, so that it does not depend on the device of the pictures."""
    values = torch.randn(pictures.shape, generator=generator, device=generator.device).to(pictures)
    return (pictures + sd * values).clamp(0, 1)


def blur(pictures: Tensor, sigma: float) -> Tensor:
    """Blur pictures by a Gaussian with a standard deviation of ``sigma`` pixels, cut off at three of them; borders are
    replicated."""
    radius = math.ceil(3 * sigma)
    weights = torch.exp(-torch.arange(-radius, radius + 1, dtype=torch.float64).square() / (2 * sigma**2))
    weights = (weights / weights.sum()).to(pictures)
    planes = pictures.flatten(0, 1).unsqueeze(1)
    for shape, pad in (((1, 1, 1, -1), (radius, radius, 0, 0)), ((1, 1, -1, 1), (0, 0, radius, radius))):
        planes = F.conv2d(F.pad(planes, pad, mode="replicate"), weights.view(shape))
    return planes.view_as(pictures)


def contrast(pictures: Tensor, share: float) -> Tensor:
    """Reduce the contrast of pictures: the distance of each pixel from the mean of its picture and channel is
    multiplied by ``share``."""
    mean = pictures.mean((2, 3), keepdim=True)
    return mean + share * (pictures - mean)

"""Pictures made worse in known ways: noise, blur and less contrast (as of Hendrycks and Dietterich 2019).

All take and give pictures (N, C, H, W) with pixels in [0, 1]; what happens to one does not depend on the others.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def noise(pictures: Tensor, sd: float, generator: torch.Generator) -> Tensor:
    """Gaussian noise of standard deviation ``sd``, cut off at 0 and 1. Drawn where the generator is, so that every
    device has the same."""
    drawn = torch.randn(pictures.shape, generator=generator, device=generator.device).to(pictures)
    return (pictures + sd * drawn).clamp(0, 1)


def blur(pictures: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of ``sigma`` pixels, up to three of them on either side; border pixels are repeated beyond."""
    reach = math.ceil(3 * sigma)
    weights = torch.exp(-torch.arange(-reach, reach + 1, dtype=torch.float64).square() / (2 * sigma**2))
    weights = (weights / weights.sum()).to(pictures)
    single = pictures.flatten(0, 1).unsqueeze(1)
    for shape, pad in (((1, 1, 1, -1), (reach, reach, 0, 0)), ((1, 1, -1, 1), (0, 0, reach, reach))):
        single = F.conv2d(F.pad(single, pad, mode="replicate"), weights.view(shape))
    return single.view_as(pictures)


def contrast(pictures: Tensor, share: float) -> Tensor:
    """Each pixel nearer to the mean of its picture and channel: ``share`` of the distance is left."""
    mean = pictures.mean((2, 3), keepdim=True)
    return mean + share * (pictures - mean)

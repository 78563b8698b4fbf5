"""Motion blur, as of a camera that moves while the shutter is open; it turns MNIST into n-MNIST.

n-MNIST (Basu et al. 2017) has the blur of a linear motion of 5 pixels at 15° to the horizontal, counter-clockwise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

LENGTH, ANGLE = 5.0, 15.0
"""The motion that blurs n-MNIST: its length in pixels, and its angle in degrees to the horizontal."""
PART = 4096
"""Number of pictures that are blurred at once."""


def kernel(length: float = LENGTH, angle: float = ANGLE) -> Tensor:
    """The kernel of the blur: a line with soft edges, one pixel wide, with a sum of 1.

    The weight of a pixel falls from 1 to 0 as the distance of its centre from the line grows from 0 to 1. The line
    runs between the centres of the first and the last pixel that it covers, so that its length is ``length − 1``.
    (MATLAB's fspecial("motion", …) has the same rule, except for the pixels next to the line's ends.)

    Args:
        length: number of pixels that the motion covers, at least 1, which is no blur.
        angle: degrees from the horizontal, counter-clockwise in the picture as it is shown.

    Returns:
        (height, width) in float64, both odd.
    """
    half, turn = (length - 1) / 2, math.radians(angle)
    along = torch.tensor([-math.sin(turn), math.cos(turn)], dtype=torch.float64)  # rows count downwards
    reach = (half * along.abs()).ceil().int() + 1
    rows, columns = (torch.arange(-int(r), int(r) + 1, dtype=torch.float64) for r in reach)
    pixels = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1)
    nearest = (pixels @ along).clamp(-half, half).unsqueeze(-1) * along
    weights = (1 - (pixels - nearest).norm(dim=-1)).clamp(min=0)
    weights[weights < 1e-12] = 0  # rounding errors at distance 1
    rows, columns = (weights.sum(d).nonzero().flatten() for d in (1, 0))
    weights = weights[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return weights / weights.sum()


def blur(pictures: Tensor, length: float = LENGTH, angle: float = ANGLE) -> Tensor:
    """Pictures (N, C, H, W) of floating point, blurred by a linear motion, in the same shape; they are taken to be
    black beyond their borders.

    Computed in float64, so that devices differ by the last rounding only.
    """
    weights = kernel(length, angle).to(pictures.device)
    padding = (weights.shape[0] // 2, weights.shape[1] // 2)
    blurred = torch.empty_like(pictures)
    for part, out in zip(pictures.split(PART), blurred.split(PART), strict=True):
        planes = part.double().flatten(0, 1).unsqueeze(1)
        out.copy_(F.conv2d(planes, weights[None, None], padding=padding).view_as(part))
    return blurred

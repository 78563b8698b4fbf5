"""How well pictures are recovered: as they are, and with brightness and contrast fitted."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar.inspect import psnr, ssim

CLOSEST = 1e-10
"""Mean square error below which pictures count as equal, so that a mean of PSNR stays finite: 100 dB."""


def fitted(x: Tensor, back: Tensor) -> Tensor:
    """What was made of pictures x (N, C, H, W), each with the brightness and the contrast, at least 0, with which it
    comes nearest to its own: nets that never learned these are judged as kindly as can be."""
    mean, middle = (one.mean((1, 2, 3), keepdim=True) for one in (x, back))
    away = back - middle
    inner, size = ((one * away).sum((1, 2, 3), keepdim=True) for one in (x, away))
    contrast = (inner / size.clamp(min=torch.finfo(size.dtype).tiny)).clamp(min=0)
    return mean + contrast * away


def recovery(x: Tensor, back: Tensor) -> dict[str, float]:
    """PSNR in dB and SSIM of pictures x (N, C, H, W) in [0, 1] and what was made of them, as they would be shown, cut
    off at 0 and 1; and "scaled", with brightness and contrast of each fitted first. Means over the pictures."""
    found = {}
    for name, pictures in (("", back), ("_scaled", fitted(x, back))):
        seen = pictures.clamp(0, 1)
        near = (x - seen).square().mean((1, 2, 3)) <= CLOSEST
        found[f"psnr{name}"] = float(torch.where(near, 100.0, psnr(x, seen)).mean())
        found[f"ssim{name}"] = float(ssim(x, seen).mean())
    return found

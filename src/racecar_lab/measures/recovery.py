"""Quality of reconstructed pictures: PSNR and SSIM, as they are and with brightness and contrast fitted."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar.inspect import psnr, ssim

CLOSEST = 1e-10
"""Mean squared error of a picture up to which its PSNR is set to 100 dB, so that a mean of PSNR stays finite."""


def fitted(x: Tensor, back: Tensor) -> Tensor:
    """Reconstructions of pictures x (N, C, H, W), each with the brightness and the contrast (at least 0) that minimise
    its squared error: for nets that were not trained to keep these two."""
    x_mean, back_mean = (pictures.mean((1, 2, 3), keepdim=True) for pictures in (x, back))
    centred = back - back_mean
    inner, size = ((pictures * centred).sum((1, 2, 3), keepdim=True) for pictures in (x, centred))
    contrast = (inner / size.clamp(min=torch.finfo(size.dtype).tiny)).clamp(min=0)
    return x_mean + contrast * centred


def recovery(x: Tensor, back: Tensor) -> dict[str, float]:
    """Mean PSNR in dB and mean SSIM of pictures x (N, C, H, W) in [0, 1] and their reconstructions, clipped to [0, 1]:
    "psnr" and "ssim". For "psnr_scaled" and "ssim_scaled", brightness and contrast of the reconstructions are fitted
    first."""
    metrics = {}
    for name, pictures in (("", back), ("_scaled", fitted(x, back))):
        clipped = pictures.clamp(0, 1)
        equal = (x - clipped).square().mean((1, 2, 3)) <= CLOSEST
        metrics[f"psnr{name}"] = float(torch.where(equal, 100.0, psnr(x, clipped)).mean())
        metrics[f"ssim{name}"] = float(ssim(x, clipped).mean())
    return metrics

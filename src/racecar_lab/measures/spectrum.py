"""Energy spectra of pictures: how much of them is coarse and how much is fine."""

from __future__ import annotations

import torch
from torch import Tensor

FLOOR = 1e-12
"""Share of the whole energy below which a shell counts as empty: rounding makes more than nothing."""


def energy_spectrum(x: Tensor) -> Tensor:
    """Energy by wavenumber, mean over pictures x (N, C, S, S): (S // 2 + 1,) in float64.

    Shell k holds the energy of all waves whose wavenumber rounds to k; what lies beyond S / 2, in the corners, is left
    out. With all corners the sum would be the mean square of the pixels (Parseval).
    """
    if x.dim() != 4 or x.shape[2] != x.shape[3]:
        raise ValueError(f"pictures must be square, (N, C, S, S), not of shape {tuple(x.shape)}")
    size = x.shape[-1]
    waves = torch.fft.fft2(x.double(), norm="forward").abs().square().sum(1).mean(0)
    k = torch.fft.fftfreq(size, 1 / size, device=x.device, dtype=torch.float64)
    shells = torch.hypot(k.unsqueeze(0), k.unsqueeze(1)).round().long()
    found = torch.zeros(int(shells.max()) + 1, dtype=torch.float64, device=x.device)
    return found.index_add(0, shells.flatten(), waves.flatten())[: size // 2 + 1] / x.shape[1]


def spectrum_distance(x: Tensor, y: Tensor) -> float:
    """How far the spectra of two sets of pictures are apart: the mean over wavenumbers from 1 on of the difference of
    their logarithms to base 10, without its sign. 0.3 is a factor of two."""
    a, b = energy_spectrum(x), energy_spectrum(y)
    floor = FLOOR * torch.maximum(a.sum(), b.sum()).clamp(min=torch.finfo(torch.float64).tiny)
    return float((a.clamp(min=floor).log10() - b.clamp(min=floor).log10())[1:].abs().mean())

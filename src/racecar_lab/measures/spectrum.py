"""Energy spectra of pictures: the energy of coarse and fine structures."""

from __future__ import annotations

import torch
from torch import Tensor

FLOOR = 1e-12
"""Share of the total energy below which the energy of a wavenumber is raised to this share: it is a rounding error."""


def energy_spectrum(x: Tensor) -> Tensor:
    """Energy by wavenumber, the mean over pictures x (N, C, S, S): (S // 2 + 1,) in float64.

    Entry k, a shell, is the energy of all waves whose wavenumber rounds to k. Wavenumbers above S / 2 are left out, or
    the sum would be the mean square of the pixels (Parseval).
    """
    if x.dim() != 4 or x.shape[2] != x.shape[3]:
        raise ValueError(f"pictures must be square, (N, C, S, S), not of shape {tuple(x.shape)}")
    size = x.shape[-1]
    waves = torch.fft.fft2(x.double(), norm="forward").abs().square().sum(1).mean(0)
    k = torch.fft.fftfreq(size, 1 / size, device=x.device, dtype=torch.float64)
    shells = torch.hypot(k.unsqueeze(0), k.unsqueeze(1)).round().long()
    energies = torch.zeros(int(shells.max()) + 1, dtype=torch.float64, device=x.device)
    return energies.index_add(0, shells.flatten(), waves.flatten())[: size // 2 + 1] / x.shape[1]


def spectrum_distance(x: Tensor, y: Tensor) -> float:
    """The distance of the energy spectra of two sets of pictures: the mean absolute difference of their logarithms to
    base 10, over wavenumbers from 1 on. 0.3 is a factor of two."""
    a, b = energy_spectrum(x), energy_spectrum(y)
    floor = FLOOR * torch.maximum(a.sum(), b.sum()).clamp(min=torch.finfo(torch.float64).tiny)
    return float((a.clamp(min=floor).log10() - b.clamp(min=floor).log10())[1:].abs().mean())

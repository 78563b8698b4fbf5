"""Waves and advection on a periodic square, solved exactly in Fourier space; optionally with viscosity.

Both equations are linear with constant coefficients, so that every Fourier mode has a solution in closed form: the
solver takes a step of any length, forward or backward in time, with no error but rounding. Lengths are in cells of the
grid, times in steps.

    waves:      ∂u/∂t = c v + ν ∇²u,  ∂v/∂t = c ∇²u + ν ∇²v    (without viscosity ν: ∂²u/∂t² = c² ∇²u)
    advection:  ∂u/∂t = −c e · ∇u + ν ∇²u,  e a unit vector at 30° to the rows

Viscosity damps a mode with wavenumber k by exp(−ν k²) in every step, fine structure first. What it has damped below
rounding or below the error of a model cannot be recovered: the system forgets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

ANGLE = math.radians(30)
"""Direction of the advection: along no axis and no diagonal of the grid."""
WIDTHS = (2.0, 4.0)
"""Smallest and largest width (standard deviation) of a drop, in cells."""
UNIT = 3.0
"""Unit of v, a typical width of a drop: with it, u and v of a wave are about equally large."""
DROPS = 12
"""Number of drops in an initial state."""


@dataclass(frozen=True)
class System:
    """An equation, and its exact solution from any state (N, fields, H, W)."""

    speed: float = 2.0
    """Cells that waves, or what is carried, travel in a step."""
    viscosity: float = 0.0
    """ν, in cells² per step."""
    fields: ClassVar[int]
    """Number of fields of a state."""

    def solve(self, state: Tensor, steps: Tensor | float) -> Tensor:
        """The state after a number of steps, which may be a fraction, negative, or (N,) for a number per sample.

        Computed in float64; the result has the type of ``state``.
        """
        steps = torch.as_tensor(steps, dtype=torch.float64, device=state.device).reshape(-1, 1, 1)
        rows, columns = wavenumbers(state)
        spectra = self._solve(torch.fft.fft2(state.double()), rows, columns, steps)
        damping = torch.exp(-self.viscosity * (rows**2 + columns**2) * steps).unsqueeze(1)
        return torch.fft.ifft2(spectra * damping).real.to(state.dtype)

    def _solve(self, spectra: Tensor, rows: Tensor, columns: Tensor, steps: Tensor) -> Tensor:
        """The Fourier modes (N, fields, H, W) after the steps (N, 1, 1), without viscosity."""
        raise NotImplementedError

    def energy(self, state: Tensor) -> Tensor:
        """Energy of states, (N,) in float64. Without viscosity it is conserved."""
        raise NotImplementedError

    def initial(self, count: int, size: int, generator: torch.Generator) -> Tensor:
        """Random initial states (N, fields, size, size): drops, at rest."""
        state = torch.zeros(count, self.fields, size, size)
        state[:, 0] = drops(count, size, generator)
        return state


class Waves(System):
    """The wave equation for a height u and v = UNIT / c · ∂u/∂t."""

    fields = 2

    def _solve(self, spectra: Tensor, rows: Tensor, columns: Tensor, steps: Tensor) -> Tensor:
        k = (rows**2 + columns**2).sqrt()
        phase = self.speed * k * steps
        u, v = spectra.unbind(1)
        cosine, sine = phase.cos(), phase.sin()
        ratio = self.speed * steps * torch.sinc(phase / math.pi)  # sin(phase) / k, also where k = 0
        return torch.stack((u * cosine + v * ratio / UNIT, v * cosine - u * k * sine * UNIT), 1)

    def energy(self, state: Tensor) -> Tensor:
        rows, columns = wavenumbers(state)
        u, v = torch.fft.fft2(state.double(), norm="ortho").abs().square().unbind(1)
        return ((rows**2 + columns**2) * u + v / UNIT**2).sum((1, 2)) / 2


class Advection(System):
    """One field that is carried along unchanged."""

    fields = 1

    def _solve(self, spectra: Tensor, rows: Tensor, columns: Tensor, steps: Tensor) -> Tensor:
        phase = self.speed * (math.sin(ANGLE) * rows + math.cos(ANGLE) * columns) * steps
        return spectra * torch.polar(torch.ones_like(phase), -phase).unsqueeze(1)

    def energy(self, state: Tensor) -> Tensor:
        return state.double().square().sum((1, 2, 3)) / 2


SYSTEMS: dict[str, type[System]] = {"waves": Waves, "advection": Advection}
"""Name → system."""


def wavenumbers(state: Tensor) -> tuple[Tensor, Tensor]:
    """Wavenumbers along rows (H, 1) and columns (W,) of the modes of ``fft2``, in radians per cell."""
    rows, columns = (
        torch.fft.fftfreq(count, dtype=torch.float64, device=state.device) * 2 * math.pi for count in state.shape[-2:]
    )
    return rows.unsqueeze(1), columns


def drops(count: int, size: int, generator: torch.Generator) -> Tensor:
    """Random fields (N, size, size): Gaussian drops of both signs, of mean square 1. Same generator, same fields."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, DROPS, 1, generator=generator, dtype=torch.float64)

    cells = torch.arange(size, dtype=torch.float64)
    heights, widths = uniform(0.5, 1.0), uniform(*WIDTHS)
    heights = heights * torch.where(uniform(-1.0, 1.0) < 0, -1.0, 1.0)
    profiles = []
    for _ in range(2):
        distance = cells - uniform(0.0, size)
        images = [torch.exp(-((distance + around * size) ** 2) / (2 * widths**2)) for around in (-2, -1, 0, 1, 2)]
        profiles.append(torch.stack(images).sum(0))
    fields = torch.einsum("nd,ndr,ndc->nrc", heights[..., 0], *profiles)
    fields = fields - fields.mean((1, 2), keepdim=True)
    return (fields / fields.square().mean((1, 2), keepdim=True).sqrt()).float()

"""Energy spectra against waves whose energy is known."""

import math

import pytest
import torch

from racecar_lab.measures.spectrum import energy_spectrum, spectrum_distance

SIZE = 32


def wave(k: float, size: int = SIZE) -> torch.Tensor:
    return torch.cos(2 * math.pi * k * torch.arange(size, dtype=torch.float64) / size)


@pytest.mark.parametrize("k", [0, 1, 5, 16])
def test_a_wave_has_its_energy_at_its_wavenumber(k):
    """Along either axis; half the square of the amplitude, but for the constant and the finest wave."""
    for x in (wave(k).view(1, 1, 1, -1).expand(2, 3, SIZE, SIZE), wave(k).view(1, 1, -1, 1).expand(2, 3, SIZE, SIZE)):
        wanted = torch.zeros(SIZE // 2 + 1, dtype=torch.float64)
        wanted[k] = 1.0 if k in (0, SIZE // 2) else 0.5
        torch.testing.assert_close(energy_spectrum(3 * x), 9 * wanted, atol=1e-12, rtol=1e-9)


def test_the_sum_is_the_mean_square_of_what_is_not_in_the_corners():
    x = torch.randn(4, 2, SIZE, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    k = torch.fft.fftfreq(SIZE, 1 / SIZE, dtype=torch.float64)
    inside = torch.hypot(k[:, None], k[None]).round() <= SIZE // 2
    round_ = torch.fft.ifft2(torch.fft.fft2(x) * inside).real
    torch.testing.assert_close(energy_spectrum(x).sum(), round_.square().mean())


def test_distances_are_powers_of_ten():
    x = torch.rand(4, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    assert spectrum_distance(x, x) == 0
    assert spectrum_distance(10 * x, x) == spectrum_distance(x, 10 * x) == pytest.approx(2, rel=1e-4)
    assert spectrum_distance(x + 5, x) == pytest.approx(0, abs=1e-3), "the mean is not compared"
    assert math.isfinite(spectrum_distance(x, torch.zeros_like(x)))
    with pytest.raises(ValueError, match="must be square"):
        energy_spectrum(x[..., 1:])

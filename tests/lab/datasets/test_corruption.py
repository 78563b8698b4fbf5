"""Noise, blur and less contrast: what is known of them whatever the picture."""

import math

import pytest
import torch
from scipy import ndimage

from racecar_lab.datasets import corruption


@pytest.fixture
def pictures():
    return torch.rand(3, 2, 9, 11, generator=torch.Generator().manual_seed(0))


def test_noise():
    """Of its standard deviation where nothing is cut off; the same from the same generator."""
    grey = torch.full((4, 1, 50, 50), 0.5)
    first, again = (corruption.noise(grey, 0.1, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, again)
    assert float((first - grey).std()) == pytest.approx(0.1, rel=0.03)
    loud = corruption.noise(grey, 3.0, torch.Generator().manual_seed(1))
    assert (float(loud.min()), float(loud.max())) == (0.0, 1.0)


@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.0])
def test_blur_by_scipy(sigma, pictures):
    for picture, result in zip(pictures.flatten(0, 1), corruption.blur(pictures, sigma).flatten(0, 1), strict=True):
        wanted = ndimage.gaussian_filter(picture.double().numpy(), sigma, mode="nearest", radius=math.ceil(3 * sigma))
        torch.testing.assert_close(result.double(), torch.from_numpy(wanted), rtol=0, atol=1e-6)


def test_contrast(pictures):
    """The mean of each channel stays, and a share of the spread is left."""
    result = corruption.contrast(pictures, 0.2)
    torch.testing.assert_close(result.mean((2, 3)), pictures.mean((2, 3)))
    torch.testing.assert_close(result.std((2, 3)), 0.2 * pictures.std((2, 3)))

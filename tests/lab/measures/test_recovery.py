"""Brightness and contrast are fitted, and nothing else is."""

import math

import torch

from racecar_lab.measures.recovery import fitted, recovery


def pictures(seed: int) -> torch.Tensor:
    return torch.rand(5, 1, 16, 16, generator=torch.Generator().manual_seed(seed)) * 0.8 + 0.1


def test_brightness_and_contrast_of_each_picture_are_undone():
    x = pictures(0)
    scale, offset = torch.tensor([0.1, 0.5, 1.0, 2.0, 30.0]).view(-1, 1, 1, 1), torch.arange(5.0).view(-1, 1, 1, 1)
    torch.testing.assert_close(fitted(x, scale * x + offset), x, atol=1e-4, rtol=1e-4)


def test_no_other_brightness_or_contrast_is_nearer():
    x, back = pictures(0), pictures(0) + 0.3 * pictures(1)
    least = (fitted(x, back) - x).square().sum()
    for scale in (0.9, 1.0, 1.1):
        for offset in (-0.05, 0.0, 0.05):
            assert least <= (fitted(x, back) * scale + offset - x).square().sum() + 1e-5


def test_what_is_upside_down_or_flat_becomes_the_mean():
    x = pictures(0)
    for back in (1 - x, torch.zeros_like(x)):
        torch.testing.assert_close(fitted(x, back), x.mean((1, 2, 3), keepdim=True).expand_as(x))


def test_recovery():
    x = pictures(0)
    same, dark, black = recovery(x, x), recovery(x, x / 10), recovery(x, torch.zeros_like(x))
    assert same["psnr"] == 100
    assert same["ssim"] > 0.9999
    assert dark["ssim_scaled"] > 0.99 > 0.5 > dark["ssim"]
    assert black["psnr"] == float((-10 * x.square().mean((1, 2, 3)).log10()).mean())
    assert all(map(math.isfinite, black.values()))
    assert recovery(x, x + 7)["psnr"] == recovery(x, torch.ones_like(x))["psnr"], "as it would be shown"

"""Slant and stroke width of drawn bars."""

import pytest
import torch

from racecar_lab.measures.strokes import slant, stroke_width


def bar(lean: float, width: int = 1) -> torch.Tensor:
    """A bar of 20 rows that leans to the right by so many pixels for each pixel upwards."""
    x = torch.zeros(1, 1, 28, 28)
    for row in range(4, 24):
        left = round(14 - lean * (row - 13.5))
        x[0, 0, row, left : left + width] = 0.7
    return x


@pytest.mark.parametrize("lean", [-0.5, 0.0, 0.3])
def test_slant_of_a_bar(lean):
    assert float(slant(bar(lean))) == pytest.approx(lean, abs=0.03)


def test_slant_is_that_of_the_mirror_image_turned_round():
    x = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(slant(x.flip(3)), -slant(x))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_width_of_a_bar(width):
    """Ink of 0.7 counts as 0.7 of a pixel."""
    assert float(stroke_width(bar(0.0, width))) == pytest.approx(0.7 * width, rel=0.03)


def test_pictures_without_extent_have_none():
    dot = torch.zeros(2, 1, 28, 28)
    dot[1, 0, 3, 4] = 1.0
    assert slant(dot).tolist() == stroke_width(dot).tolist() == [0.0, 0.0]

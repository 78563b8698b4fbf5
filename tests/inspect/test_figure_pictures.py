"""Pictures in figures have the grey values and colours of the vectors and inputs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes

from racecar.inspect import figures
from racecar.inspect.singular_vectors import SingularVectors
from tests.inspect.figure_cases import close, drawn, inverse, vectors

pytestmark = pytest.mark.usefixtures("nothing_of_the_user_s", "no_layout")


def pixels(axis: Axes) -> np.ndarray:
    """The pixels of the one picture in an axis, (H, W) or (H, W, 3)."""
    (image,) = axis.images
    assert image.origin == "upper"
    return np.asarray(image.get_array())


def test_grey_is_zero_in_vectors():
    """Zero is grey; white and black are plus and minus the largest absolute value of each picture."""
    rows = torch.tensor([[0.0, 1.0, -2.0, 0.5], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 1.5]])
    found = SingularVectors("fc", torch.ones(3), rows, (1, 2, 2), None, False, "value")
    axes = figures.vectors_figure(found).axes
    close(pixels(axes[0]), [[0.5, 0.75], [0, 0.625]])
    close(pixels(axes[1]), np.full((2, 2), 0.5))
    close(pixels(axes[2]), [[1, 0.5], [0.5, 0.75]])


def test_of_five_channels_the_strongest_is_shown():
    rows = torch.zeros(2, 5, 2, 2)
    rows[0, 3] = torch.tensor([[1.0, -1.0], [0.0, 0.5]])
    rows[0, 1] = 0.5
    rows[1, 4] = torch.tensor([[0.0, 0.0], [0.0, -1.0]])
    found = SingularVectors("conv", torch.ones(2), rows.flatten(1), (5, 2, 2), None, False, "value")
    axes = figures.vectors_figure(found).axes
    close(pixels(axes[0]), [[1, 0], [0.5, 0.75]])
    close(pixels(axes[1]), [[0.5, 0.5], [0.5, 0]])


def test_vectors_of_colour_keep_their_colours():
    rows = torch.tensor([[[[0.0, 2.0]], [[0.0, -2.0]], [[0.0, 1.0]]]])
    found = SingularVectors("conv", torch.ones(1), rows.flatten(1), (3, 1, 2), None, False, "value")
    (axis,) = figures.vectors_figure(found).axes
    close(pixels(axis), [[[0.5, 0.5, 0.5], [1.0, 0.0, 0.75]]])


def test_rebuilt_inputs_share_the_inputs_shades():
    """A rebuilt picture that is too dark looks too dark; values outside the range of the inputs are clipped."""
    inputs = torch.tensor([[[[0.0, 10.0], [5.0, 2.5]]], [[[10.0, 10.0], [10.0, 10.0]]]])
    found = replace(inverse(inputs=inputs, depths=0), rebuilt={"d2": inputs / 2, "d3": inputs * 4 - 10})
    axes = np.reshape(figures.rebuilt_figure(found).axes, (3, 2))
    close(pixels(axes[0, 0]), [[0, 1], [0.5, 0.25]])
    close(pixels(axes[1, 0]), [[0, 0.5], [0.25, 0.125]])
    close(pixels(axes[2, 0]), [[0, 1], [1, 0]])
    close(pixels(axes[0, 1]), np.ones((2, 2)))
    assert [axis.get_ylabel() for axis in axes[:, 0]] == ["input", "from d2", "from d3"]


def test_tensors_of_low_precision():
    found, inputs = vectors(2), drawn(2, 3, 4, 4)
    low = figures.vectors_figure(replace(found, vectors=found.vectors.bfloat16(), values=found.values.half()))
    pairs = [(figures.vectors_figure(found), low)]
    pairs.append([figures.rebuilt_figure(inverse(inputs=one)) for one in (inputs, inputs.bfloat16())])
    for figure, coarse in pairs:
        shown = [[image.get_array() for axis in one.axes for image in axis.images] for one in (figure, coarse)]
        assert len(shown[0]) > 1
        for a, b in zip(*shown, strict=True):
            assert abs(a - b).max() < 0.02


def test_pictures_that_are_not_finite():
    """Infinite and NaN pixels of a diverged network can be drawn, in colour, too."""
    inputs = drawn(2, 3, 4, 4)
    worse = inputs.clone()
    worse[0, 0, 0, 0], worse[0, 1, 1, 1], worse[1, 2, 2, 2] = math.nan, math.inf, -math.inf
    figure = figures.rebuilt_figure(
        replace(inverse(inputs=inputs, depths=0), rebuilt={"d2": worse, "d3": worse[:, :1]})
    )
    figure.draw_without_rendering()

"""Motion blur: the kernel's sum, length and angle, and what it does to points and pictures."""

import math

import numpy as np
import pytest
import torch

from racecar_lab.datasets import motion
from racecar_lab.datasets.motion import blur, kernel


def moments(weights):
    """Variance along the main axis and across it, and that axis's angle in degrees, counter-clockwise."""
    w = weights.numpy()
    rows, columns = np.indices(w.shape)
    y, x = -(rows - w.shape[0] // 2), columns - w.shape[1] // 2  # upwards, to the right
    assert abs((w * x).sum()) < 1e-12  # the middle stays where it is
    assert abs((w * y).sum()) < 1e-12
    covariance = np.array([[(w * x * x).sum(), (w * x * y).sum()], [(w * x * y).sum(), (w * y * y).sum()]])
    (across, along), axes = np.linalg.eigh(covariance)
    return along, across, math.degrees(math.atan2(axes[1, 1], axes[0, 1])) % 180


@pytest.mark.parametrize("length", [5, 9, 25])
@pytest.mark.parametrize("angle", [0, 15, 30, 45, 75, 90, 120, 165])
def test_length_and_angle(length, angle):
    """By second moments: those of a line of so many pixels, in that direction, and thin across it."""
    weights = kernel(length, angle)
    assert float(weights.sum()) == pytest.approx(1)
    along, across, direction = moments(weights)
    assert abs((direction - angle + 90) % 180 - 90) < (2 if length == 5 else 0.7)
    assert math.sqrt(12 * along + 1) == pytest.approx(length, rel=0.06)
    assert across < 0.3


def test_the_kernel_by_hand():
    """Of n-MNIST: the distance of every pixel from the line, worked out point by point."""
    ends = 2 * math.cos(math.radians(15)), 2 * math.sin(math.radians(15))
    points = [(t / 2000 * ends[0], t / 2000 * ends[1]) for t in range(-2000, 2001)]
    wanted = np.array([
        [max(0, 1 - min(math.hypot(x - a, y - b) for a, b in points)) for x in range(-2, 3)] for y in (1, 0, -1)
    ])  # fmt: skip
    assert (motion.LENGTH, motion.ANGLE) == (5, 15)
    np.testing.assert_allclose(kernel().numpy(), wanted / wanted.sum(), atol=1e-6)


def test_a_level_motion_is_a_mean_of_neighbours():
    assert torch.allclose(kernel(5, 0), torch.full((1, 5), 0.2, dtype=torch.float64))
    assert torch.allclose(kernel(5, 90), torch.full((5, 1), 0.2, dtype=torch.float64))
    x = torch.rand(3, 2, 6, 9)
    wide = torch.nn.functional.pad(x, (2, 2))
    assert torch.allclose(blur(x, 5, 0), sum(wide[..., i : i + 9] for i in range(5)) / 5)


def test_a_point_becomes_a_line():
    x = torch.zeros(2, 1, 11, 11)
    x[0, 0, 5, 5] = x[1, 0, 3, 6] = 1
    seen = blur(x)
    assert torch.allclose(seen[0, 0, 4:7, 3:8], kernel().float())
    assert torch.allclose(seen[1, 0, 2:5, 4:9], kernel().float())
    assert torch.allclose(seen.sum((1, 2, 3)), torch.ones(2))
    assert seen[0, 0, 4, 7] > 0 == seen[0, 0, 4, 3]  # it rises to the right


@pytest.mark.parametrize("angle", [0, 15, 90])
def test_no_motion(angle):
    assert kernel(1, angle).tolist() == [[1.0]]
    x = torch.rand(2, 3, 5, 5)
    assert torch.equal(blur(x, 1, angle), x)


def test_pictures_one_by_one(monkeypatch):
    """Parts, channels and types change nothing."""
    monkeypatch.setattr(motion, "PART", 2)
    x = torch.rand(5, 3, 8, 7)
    seen = blur(x)
    assert seen.dtype == x.dtype
    for n in range(5):
        for c in range(3):
            assert torch.equal(seen[n, c], blur(x[n : n + 1, c : c + 1])[0, 0])
    torch.testing.assert_close(blur(x.double()), seen.double(), rtol=0, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_the_device():
    x = torch.rand(50, 1, 28, 28)
    torch.testing.assert_close(blur(x.cuda()).cpu(), blur(x), rtol=0, atol=1e-7)

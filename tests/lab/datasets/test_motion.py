"""Motion blur: its kernel, and what it does to points and pictures."""

import math

import numpy as np
import pytest
import torch

from racecar_lab.datasets import motion
from racecar_lab.datasets.motion import blur, kernel


@pytest.mark.parametrize("length, angle", [(1, 30), (5, 0), (5, 15), (6, 120), (9, 75), (9, 90)])
def test_the_kernel_by_hand(length, angle):
    """The distance of every pixel from the line, worked out point by point."""
    half, turn = (length - 1) / 2, math.radians(angle)
    points = np.linspace(-half, half, 4001)[:, None] * np.array([math.cos(turn), math.sin(turn)])
    pixels = np.array([[(x, y) for x in range(-6, 7)] for y in range(6, -7, -1)])
    distance = np.linalg.norm(pixels[:, :, None] - points, axis=3).min(2)
    wanted = np.maximum(0, 1 - distance)
    weights = kernel(length, angle)
    rows, columns = ((13 - side) // 2 for side in weights.shape)
    seen = np.pad(weights.numpy(), ((rows, rows), (columns, columns)))
    np.testing.assert_allclose(seen, wanted / wanted.sum(), atol=1e-6)
    assert (motion.LENGTH, motion.ANGLE) == (5, 15)  # of n-MNIST


def test_a_point_becomes_a_line():
    x = torch.zeros(2, 1, 11, 11)
    x[0, 0, 5, 5] = x[1, 0, 3, 6] = 1
    seen = blur(x)
    assert torch.allclose(seen[0, 0, 4:7, 3:8], kernel().float())
    assert torch.allclose(seen[1, 0, 2:5, 4:9], kernel().float())
    assert torch.allclose(seen.sum((1, 2, 3)), torch.ones(2))
    assert seen[0, 0, 4, 7] > 0 == seen[0, 0, 4, 3]  # it rises to the right


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

"""What the tests of the orthogonality regularisers share: models, weights, and Gram matrices by hand."""

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from torch import nn

from racecar.orthogonality import dso, mc, ocnn, so, srip

drawn = settings(suppress_health_check=list(HealthCheck))
ALL = [so, dso, mc, srip, ocnn]
SIDES = ["smaller", "columns", "rows"]


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def close(actual, expected, tolerance=1e-9):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def net():
    """Every kind of layer, some of one shape."""
    return nn.Sequential(
        nn.Conv1d(2, 3, 3, stride=2),
        nn.Sequential(
            nn.Conv2d(4, 6, (2, 3), padding=1, groups=2), nn.BatchNorm2d(6), nn.Conv2d(4, 6, (2, 3), groups=2)
        ),
        nn.Conv3d(2, 5, 2, dilation=2),
        nn.ConvTranspose1d(4, 2, 3),
        nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2),
        nn.ConvTranspose3d(1, 3, 2),
        nn.Linear(5, 3),
        nn.Linear(3, 7),
    ).double()


def gram_error(weight, side):
    """The residual of one weight, entry by entry in NumPy."""
    w = weight.detach().numpy().reshape(len(weight), -1)
    if side == "columns" or (side == "smaller" and w.shape[0] > w.shape[1]):
        w = w.T
    return np.array([[sum(a * b) - (i == j) for j, b in enumerate(w)] for i, a in enumerate(w)])


def orthonormal(*shape):
    """A weight whose rows, or columns if it is tall, are orthonormal."""
    return nn.init.orthogonal_(torch.empty(shape, dtype=torch.float64))

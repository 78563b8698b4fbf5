"""Singular vectors as pictures: the shape of what a linear layer sees."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from racecar.inspect.singular_vectors import singular_vectors
from tests.by_hand import Net
from tests.inspect.vector_cases import random


def pictured(between, x, n):
    model = Net(lambda m, x: m.fc(between(x)), fc=nn.Linear(n, 4))
    return singular_vectors(model, "fc", data=x), model


PICTURES = random(4, 3, 4, 6)


def test_a_linear_layer_on_flattened_pictures():
    found, model = pictured(lambda x: x.flatten(1), PICTURES, 72)
    assert found.shape == (3, 4, 6)
    assert found.images.shape == (4, 3, 4, 6)
    assert torch.equal(found.images.flatten(1), found.vectors)
    again = singular_vectors(model, "fc")
    assert (again.shape, again.images) == ((72,), None)
    found, _ = pictured(lambda x: F.dropout(x[:, 0].flatten(1), 0.5, False), PICTURES, 24)
    assert found.shape in ((24,), (1, 4, 6))
    found, _ = pictured(lambda x: x.flatten(1), PICTURES[:, 0], 24)
    assert found.shape == (1, 4, 6)


def test_given_sizes():
    layer = nn.Linear(72, 4)
    for size, shape in (((3, 4, 6), (3, 4, 6)), ((9, 8), (1, 9, 8)), ([1, 9, 8], (1, 9, 8)), ((72,), (72,))):
        found = singular_vectors(layer, "", size=size)
        assert found.shape == shape
    assert found.images is None
    assert singular_vectors(nn.Linear(784, 10), "", 3, size=(28, 28)).images.shape == (3, 1, 28, 28)


def test_pooling_between():
    found, _ = pictured(lambda x: F.max_pool2d(x, 2).flatten(1), PICTURES, 18)
    assert (found.shape, found.images) == ((18,), None)
    found, _ = pictured(lambda x: x.mean((2, 3)), PICTURES, 3)
    assert (found.shape, found.images) == ((3,), None)


def test_behind_a_convolution():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(40, 4))
    found = singular_vectors(model, "3", data=PICTURES)
    assert found.images.shape == (4, 5, 2, 4)


REARRANGED = {
    "channels last": lambda x: x.permute(0, 2, 3, 1).flatten(1),
    "mirrored": lambda x: x.flip(-1).flatten(1),
    "columns first": lambda x: x.transpose(2, 3).flatten(1),
}


@pytest.mark.parametrize("name", REARRANGED)
def test_rearranged_pictures(name):
    """A picture with one bright pixel is the vector that looks for it; if that cannot be told, there is no picture."""
    between = REARRANGED[name]
    bright = torch.zeros(1, 3, 4, 6)
    bright[0, 1, 2, 5] = 1
    model = Net(lambda m, x: m.fc(between(x)), fc=nn.Linear(72, 1, bias=False))
    model.fc.weight.data = between(bright).clone()
    found = singular_vectors(model, "fc", data=PICTURES)
    assert found.images is None or torch.equal(found.images.float(), bright)


def test_normalised_pictures():
    """Constants, as of a data set's mean and deviation, leave a picture a picture."""
    found, _ = pictured(lambda x: ((x - 0.4) / 0.2).flatten(1), PICTURES, 72)
    assert found.shape == (3, 4, 6)

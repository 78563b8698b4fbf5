"""Dense nets: their layers, and Glorot's initial weights."""

import pytest
import torch
from torch import nn

from racecar_lab.networks.dense import dense, glorot


def test_glorot():
    model = glorot(dense((400, 300, 200), nn.ReLU, norm=True))
    for layer in (m for m in model if isinstance(m, nn.Linear)):
        limit = (6 / sum(layer.weight.shape)) ** 0.5
        assert layer.weight.abs().max() <= limit
        assert layer.weight.abs().max() > 0.99 * limit
        assert abs(float(layer.weight.detach().var()) / (limit**2 / 3) - 1) < 0.02
        assert not layer.bias.any()


@pytest.mark.parametrize(
    "options, kinds",
    [
        ({}, "Linear Linear"),
        ({"activation": nn.Tanh}, "Linear Tanh Linear"),
        ({"activation": nn.ReLU, "norm": True}, "Linear BatchNorm1d ReLU Linear"),
        ({"activation": nn.ReLU, "norm": True, "last": True}, "Linear BatchNorm1d ReLU Linear BatchNorm1d ReLU"),
        ({"activation": nn.ReLU, "dropout": 0.5}, "Linear ReLU Dropout Linear"),
    ],
    ids=str,
)
def test_dense(options, kinds):
    model = dense((12, 5, 2), **options)
    parts = [type(m).__name__ for m in model.modules() if not isinstance(m, (nn.Sequential, nn.Flatten))]
    assert parts == kinds.split()
    assert model.eval()(torch.zeros(4, 1, 3, 4)).shape == (4, 2)

"""Data, models and names that several tests of racecar.inspect share."""

import math

import torch
from torch import nn

from racecar.inspect.leakage import READINGS

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
NEARLY_ALL, MUCH, SOME, LITTLE = (text for _, text in READINGS)


def pictures(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def flat_linear(shape, out, seed=0, bias=True):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), out, bias=bias))


def identity(n):
    model = flat_linear((n,), n, bias=False)
    nn.init.eye_(model[1].weight)
    return model


def sklearn_bits(a, b):
    """Mutual information in bits by scikit-learn; imported here, because that takes a second."""
    from sklearn.metrics import mutual_info_score

    return mutual_info_score(a, b) / math.log(2)

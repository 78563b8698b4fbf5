"""torch.compile(fullgraph=True) sees one ordinary module: the same values, gradients and buffers as eager."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from racecar import Racecar
from tests.by_hand import Net
from tests.networks import NETWORKS, images, rows, seeded, sequence
from tests.steps import assert_same, step


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(rr, backend="aot_eager"):
    return torch.compile(rr, backend=backend, fullgraph=True)


def linears(*widths):
    return {f"l{i}": nn.Linear(a, b) for i, (a, b) in enumerate(zip(widths[:-1], widths[1:], strict=True))}


def by_hand_norm(m, x):
    """A gate and a norm that are written out: forks and joins, and yet an activation and a norm."""
    h = m.l0(x)
    h = h * torch.sigmoid(h)
    return m.l1(h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5))


def padded(mode):
    conv = nn.Conv2d(3, 4, 3, padding=1, padding_mode=mode)
    return nn.Sequential(conv, nn.ReLU6(inplace=True), nn.Conv2d(4, 5, 2, stride=2, padding=1, padding_mode=mode))


# functions that dynamo shows to no torch function mode, alone and beside each other
HIDDEN = {
    "hardswish": lambda: (Net(lambda m, x: m.l1(F.hardswish(m.l0(x))), **linears(6, 8, 3)), rows()),
    "mT": lambda: (Net(lambda m, x: m.l1(torch.tanh(m.l0(x)).mT), **linears(6, 8, 0)[:0] or {}), sequence(6)),
}

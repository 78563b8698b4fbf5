"""Which statistics a norm has in the reverse pass, and that the forward pass alone changes running ones."""

import copy

import pytest
import torch
from torch import nn

from tests.losses import classic
from tests.rules.common import chain, close, forward, random, rebuild
from tests.rules.norm_cases import batch, running, shake


def test_planned_in_training_used_in_eval():
    """Which statistics are used is decided in every call."""
    torch.manual_seed(0)
    model, x = chain(nn.Linear(5, 4), shake(nn.BatchNorm1d(4)), nn.Linear(4, 3)), random(6, 5)
    rr = classic(model, x)
    model.eval()
    y = (model(x) - model[2].bias) @ model[2].weight
    close(rr.reconstruct(x)[1], running(model[1], y))


@pytest.mark.parametrize("mode, fraction", [("auto", 0.5), ("layerwise", 1.0), ("full", 1.0), ("input", 0.5)])
def test_statistics_change_once_per_step(mode, fraction):
    """The forward pass changes them, exactly as without us; planning and rebuilding never do."""
    torch.manual_seed(0)
    model = chain(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3),
        nn.InstanceNorm2d(4, track_running_stats=True), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 4),
        nn.SyncBatchNorm(4, momentum=None), nn.Linear(4, 2),
    )  # fmt: skip
    plain, x = copy.deepcopy(model), random(4, 2, 6, 6)
    rr = classic(model, x, mode=mode, fraction=fraction)
    for _ in range(3):
        rr(x)
        plain(x)
        rr.reconstruct(x)
        assert all(map(torch.equal, model.buffers(), plain.buffers()))
    assert model[1].num_batches_tracked == 3


class Residual(nn.Module):
    """x + f(x) without any weight: one function of x, which contains a norm."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, x):
        return x + self.f(x)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nn.SyncBatchNorm(4)])
def test_statistics_inside_a_function_written_by_hand(norm):
    """Replaying x + bn(x) uses the statistics of the reverse data and changes none."""
    model, x = chain(nn.Linear(5, 4), Residual(norm), nn.Linear(4, 3)), random(6, 5)
    plain = copy.deepcopy(model)
    rr = classic(model, x)
    rr(x)
    plain(x)
    rr.reconstruct(x)
    close(dict(model.named_buffers()), dict(plain.named_buffers()))
    if any(entry.name == "2" and "join" not in entry.reason for entry in rr.plan):
        y = (forward(model, x) - model[2].bias) @ model[2].weight
        close(rr.reconstruct(x)[1], y + batch(norm, y))


@pytest.mark.parametrize("kind", ["batch of one", "fraction"])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.SyncBatchNorm(4), nn.BatchNorm2d(4, affine=False)])
def test_single_value_per_channel(norm, kind):
    """After a global mean one sample has one value per channel in the reverse pass: the running statistics serve."""
    torch.manual_seed(0)
    shake(norm)
    a, b = nn.Conv2d(2, 4, 3), nn.Linear(4, 3)
    model = chain(a, norm, nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), b)
    x = random(1 if kind == "batch of one" else 4, 2, 5, 5)
    rr = classic(model, x, mode="layerwise", scale="sum", fraction=1 / len(x))
    d2 = forward(model[:3], x)[:1]
    output, _ = rr(x)
    back = torch.tanh(running(norm, ((output[:1] - b.bias) @ b.weight).view(1, 4, 1, 1))).expand(1, 4, 3, 3)
    close(rr.terms["5"], (d2 - back).square().sum() * len(x))


def test_single_value_without_running_statistics_is_the_shift():
    torch.manual_seed(0)
    norm = shake(nn.BatchNorm2d(4, track_running_stats=False))
    model = chain(nn.Conv2d(2, 4, 3), norm, lambda x: x.mean((2, 3)), nn.Linear(4, 3))
    close(rebuild(model, random(1, 2, 5, 5))[1], norm.bias.view(1, 4, 1, 1).expand(1, 4, 3, 3))

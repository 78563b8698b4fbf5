"""Fake-quantised layers: the weight that acts is the rounded one, and its gradient goes straight through."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.losses import classic
from tests.rules.common import close

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch moves these to another package
    from torch.ao import quantization
    from torch.ao.nn import qat

LEVELS = {"quant_min": -8, "quant_max": 7, "dtype": torch.qint8}
TENSOR = quantization.FakeQuantize.with_args(observer=quantization.MinMaxObserver, **LEVELS)
CHANNEL = quantization.FakeQuantize.with_args(
    observer=quantization.PerChannelMinMaxObserver, qscheme=torch.per_channel_affine, **LEVELS
)
FUSED = quantization.FusedMovingAvgObsFakeQuantize.with_args(
    observer=quantization.MovingAverageMinMaxObserver, **LEVELS
)


class Rounding(torch.autograd.Function):
    """W becomes the weight that acts; the gradient is that of W."""

    @staticmethod
    def forward(ctx, weight, acting):
        return acting

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


@pytest.mark.parametrize("rounding", [TENSOR, CHANNEL, FUSED])
@pytest.mark.parametrize("between", [[nn.ReLU], [nn.ReLU, FUSED], [nn.ReLU, TENSOR]])
def test_the_weight_that_acts(rounding, between):
    config = quantization.QConfig(activation=nn.Identity, weight=rounding)
    first, last = qat.Linear(6, 8, qconfig=config), qat.Linear(8, 3, qconfig=config)
    between = [make() for make in between]
    model, x = nn.Sequential(first, *between, last), torch.randn(16, 6)
    model(x)  # ranges are found
    model.apply(quantization.disable_observer)
    rr = classic(model, x, mode="layerwise", scale="sum")
    _, loss = rr(x)
    loss.backward()
    w, v = (Rounding.apply(one.weight, one.weight_fake_quant(one.weight).detach()) for one in (first, last))
    assert not torch.equal(w, first.weight)
    d = F.linear(x, w, first.bias).relu()
    inner = d
    for one in between[1:]:
        inner = Rounding.apply(d, one(d).detach())
    errors = [(x - (d - first.bias) @ w).square().sum(), (d - (inner @ v.T @ v).relu()).square().sum()]
    close(list(rr.terms.values()), errors, 1e-4)
    expected = torch.autograd.grad(sum(errors), [first.weight, first.bias, last.weight])
    close([first.weight.grad, first.bias.grad, last.weight.grad], expected, 1e-4)


def test_convolutions_and_the_whole_way():
    config = quantization.QConfig(activation=nn.Identity, weight=FUSED)
    first, last = qat.Conv2d(2, 3, 3, qconfig=config), qat.Conv2d(3, 2, 3, qconfig=config)
    model, x = nn.Sequential(first, nn.ReLU(), FUSED(), last), torch.randn(2, 2, 7, 7)
    model(x)
    model.apply(quantization.disable_observer)
    rr = classic(model, x, mode="full", scale="sum")
    output, _ = rr(x)
    w, v = (one.weight_fake_quant(one.weight) for one in (first, last))
    back = F.conv_transpose2d(output - last.bias[:, None, None], v).relu()
    close(rr.reconstruct(x)[0], F.conv_transpose2d(back - first.bias[:, None, None], w), 1e-4)

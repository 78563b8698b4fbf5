"""The scales by formula: values, gradients and precision."""

import pytest
import torch
from torch import nn

from tests.losses import classic
from tests.reverse.scale_cases import SCALES, chain, rows


@pytest.mark.parametrize("scale", ["relative", "ratio"])
@pytest.mark.parametrize("dead", ["input", "layer"])
def test_relative_is_0_where_d_is_0(dead: str, scale: str):
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5)).double()
    x = rows()
    if dead == "input":
        x = torch.zeros_like(x)
    else:
        nn.init.constant_(net[0].bias, -100)
    rr = classic(net, x, scale=scale)
    _, loss = rr(x)
    assert rr.terms["0" if dead == "input" else "2"] == 0
    assert loss.isfinite()
    loss.backward()
    assert all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", SCALES)
def test_the_loss_is_a_float32_or_float64_scalar(scale: str, dtype: torch.dtype):
    net, x = chain().to(dtype), rows(64).to(dtype) * 30  # Σ d² is 3e5, beyond float16
    rr = classic(net, x, scale=scale)
    _, loss = rr(x)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    assert loss.dtype == wide
    assert loss.shape == ()
    assert {term.dtype for term in rr.terms.values()} == {wide}
    assert loss.isfinite()

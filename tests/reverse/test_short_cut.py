"""The reverse pass through a wide linear layer by WᵀW: the same loss and gradients, for fewer multiplications."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from racecar.reverse import short_cut
from tests.losses import classic
from tests.steps import assert_same, step


def both(model, x, **settings):
    """A step with the short cut where it pays, and one without; each with its number of multiplications."""
    found = []
    for asked in (short_cut.applies, lambda entry: False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(short_cut, "applies", asked)
            rr = classic(model, x, **settings)
        with FlopCounterMode(display=False) as counter:
            made = step(rr, x)
        found.append((made, counter.get_total_flops()))
    return found


@given(
    rows=st.integers(1, 40),
    inner=st.integers(1, 12),
    outer=st.integers(1, 24),
    bias=st.booleans(),
    norm=st.booleans(),
    fraction=st.sampled_from([1.0, 0.5]),
    scale=st.sampled_from(["relative", "sum"]),
)
def test_the_same_and_never_dearer(rows, inner, outer, bias, norm, fraction, scale):
    """With a norm below, which is applied again, or without; the reverse pass starts at the layer's own output."""
    torch.manual_seed(0)
    model = nn.Sequential(*([nn.LayerNorm(inner)] if norm else []), nn.Linear(inner, outer, bias)).double()
    x = torch.randn(4, rows, inner, dtype=torch.float64)
    (short, fewer), (long, usual) = both(model, x, fraction=fraction, scale=scale)
    assert_same(short, long, rtol=1e-9, atol=1e-9)
    count = round(4 * fraction) * rows
    pays = inner * (count + outer) < count * outer
    assert fewer < usual if pays else fewer == usual


WIDE = 64
OTHERS = {
    "a bias that is added apart": lambda: Apart(),
    "an activation above": lambda: nn.Sequential(nn.Linear(4, WIDE), nn.Softplus()),
    "a layer above": lambda: nn.Sequential(nn.Linear(4, WIDE), nn.Softplus(), nn.Linear(WIDE, WIDE)),
    "pooled before": lambda: nn.Sequential(nn.AvgPool1d(2), nn.Linear(4, WIDE)),
}


class Apart(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.bias = nn.Linear(4, WIDE, bias=False), nn.Parameter(torch.randn(WIDE))

    def forward(self, x):
        return self.layer(x) + self.bias


@pytest.mark.parametrize("name", OTHERS)
def test_not_where_something_lies_between(name):
    torch.manual_seed(0)
    model, x = OTHERS[name](), torch.randn(4, 50, 8 if name == "pooled before" else 4)
    (short, fewer), (long, usual) = both(model, x)
    assert_same(short, long, rtol=0, atol=0)
    assert fewer == usual


def test_a_rule_of_ones_own_is_asked(monkeypatch):
    """The short cut is not taken past a user's own rule."""
    rr = classic(nn.Linear(4, WIDE), torch.randn(50, 4))
    (entry,) = rr.plan
    assert short_cut.applies(entry)
    monkeypatch.setattr(entry.layer.op, "rule", replace(entry.layer.op.rule, apply=lambda op, y, shape: y))
    assert not short_cut.applies(entry)

"""Layers that cannot be reversed are skipped, listed with a reason, or named in an error."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from racecar import NoRuleWarning, NothingToReverse, NotReversible
from tests.by_hand import Net
from tests.losses import classic
from tests.reverse.mode_cases import linears, rows


class Distances(nn.Module):
    """A weight without a rule, and not affine."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cdist(x, self.weight)


OF_TWO_TENSORS = {
    "Bilinear": (lambda: Net(lambda m, x: m.b(m.a(x, x.flip(1))), a=nn.Bilinear(4, 4, 6)), ["a"]),
    "addmm": (
        lambda: Net(
            lambda m, x: m.b(torch.addmm(m.a(x), x, m.w)), w=nn.Parameter(torch.ones(4, 6)), **linears(a=(4, 6))
        ),
        ["a", ""],
    ),
}


@pytest.mark.filterwarnings("ignore::racecar.NoRuleWarning")
@pytest.mark.parametrize("case", OF_TWO_TENSORS)
def test_a_weighted_operation_on_two_tensors_is_listed_with_a_reason(case: str):
    """A layer is a weighted operation, also where it joins tensors."""
    build, names = OF_TWO_TENSORS[case]
    model = build()
    model.b = nn.Linear(6, 3)
    model.double()
    entries = list(classic(model, rows()).plan)
    assert [entry.name for entry in entries] == [*names, "b"]
    assert all(entry.constrained or entry.reason for entry in entries)


def parts(m: Any, x: Tensor) -> Tensor:
    return m.b(torch.tanh(m.a(x).chunk(2, 1)[0]))


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.Sequential(Distances(4, 6), nn.Tanh(), nn.Linear(6, 3).double()),
        lambda: nn.Sequential(nn.Linear(4, 6).double(), nn.Tanh(), Distances(6, 3), nn.Linear(3, 3).double()),
        lambda: Net(parts, **linears(a=(4, 6), b=(3, 2))),
    ],
    ids=["first layer", "middle layer", "part of a tensor"],
)
def test_input_mode_compares_the_input_or_says_why_not(model: Callable[[], nn.Module]):
    """Where the reverse pass does not reach the input, the loss is neither 0 nor another layer's term."""
    net, x = model(), rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoRuleWarning)
        try:
            rr = classic(net, x, mode="input")
        except (NotReversible, NothingToReverse):
            return
    _, loss = rr(x)
    first = next(iter(rr.plan))
    assert list(rr.terms) == [first.name]
    assert rr.reconstruct(x)[0].shape == x.shape
    assert loss > 0

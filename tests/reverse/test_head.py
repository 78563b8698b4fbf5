"""The weight pattern "@head": the last weighted operation on the way to each output."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from racecar import Racecar
from tests.by_hand import Net


def heads() -> nn.Module:
    """Two outputs, one behind a softmax."""
    return Net(
        lambda m, x: (m.a(m.body(x).relu()).log_softmax(-1), m.b(m.body(x).relu())),
        body=nn.Linear(4, 5), a=nn.Linear(5, 3), b=nn.Linear(5, 2),
    )  # fmt: skip


def with_features() -> nn.Module:
    """It gives its features beside the scores: the layer below is no head."""

    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        d = m.body(x)
        return d, F.softmax(m.top(d.tanh()), -1)

    return Net(forward, body=nn.Linear(4, 5), top=nn.Linear(5, 3))


def tied_head() -> nn.Module:
    """A language model whose head is its embedding."""
    return Net(
        lambda m, x: F.linear(m.body(m.embedding(x)).tanh(), m.embedding.weight),
        embedding=nn.Embedding(7, 4), body=nn.Linear(4, 4),
    )  # fmt: skip


def used_twice() -> nn.Module:
    return Net(lambda m, x: m.a(m.a(x).tanh()), a=nn.Linear(4, 4))


HEADS = [
    (heads, ["a", "b"]), (with_features, ["top"]), (tied_head, ["embedding"]),
    (used_twice, ["a#2"]),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["linear", "layerwise", "auto"])
@pytest.mark.parametrize("build, names", HEADS, ids=lambda one: getattr(one, "__name__", ""))
def test_the_head_by_its_place(build: Any, names: list[str], mode: str):
    """Whatever it is called, behind what it may stand, and in every plan that a model has."""
    x = torch.zeros(2, 3, dtype=torch.long) if build is tied_head else torch.randn(2, 4)
    rr = Racecar(build(), x, mode=mode, weight={"*": 0.1, "@head": 0})
    left_out = {entry.name: entry.reason for entry in rr.plan if not entry.constrained and entry.layer}
    assert left_out == dict.fromkeys(names, "weight 0: @head, the last on the way to an output")
    rr.weight = {"*": 0, "@head": 0.2}
    noted = [entry.name for entry in rr.plan if entry.constrained and "@head" in entry.reason]
    assert noted == [entry.name for entry in rr.plan if entry.constrained] == names
    rr.weight = {"@head": 0, "*": 0.1}  # later patterns win
    assert "@head" not in str(rr.plan)


def test_a_way_without_a_head_of_its_own():
    """Another way through the model is planned anew, and so is its head."""
    model = Net(lambda m, x, deep: m.c(m.b(x)) if deep else m.b(x), b=nn.Linear(4, 4), c=nn.Linear(4, 4))
    x = torch.randn(3, 4)
    rr = Racecar(model, (x, True), mode="linear", weight={"*": 0.1, "@head": 0.3}, reduction="sum")
    for deep, lambdas in ((True, {"b": 0.1, "c": 0.3}), (False, {"b": 0.3})):
        loss = rr(x, deep)[1]
        torch.testing.assert_close(loss, sum(lambdas[name] * term for name, term in rr.terms.items()))

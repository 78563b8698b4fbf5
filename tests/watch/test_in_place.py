"""A model with in-place operations has the same loss as its twin without."""

import warnings

import pytest
import torch
from torch import nn

from racecar import NoRuleWarning, Racecar
from tests.by_hand import Net
from tests.pairwise import pairwise
from tests.steps import assert_same, step

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def into_new(h):
    made = torch.empty(h.shape)
    made.copy_(h)
    return made


def into_wide(h):
    made = torch.empty(2, *h.shape)
    made.copy_(h)
    return made[0]


def over_itself(h):
    h = h * 1
    h.copy_(h * 2)
    return h


def turned(h):
    h = h * 1
    h.t_()
    return h.t()


def turned_twice(h):
    h = h * 1
    h.t_()
    h = h * 2
    h.unsqueeze_(0)
    h = h + 1
    h.squeeze_(0)
    return h.transpose_(0, 1)


TWINS = {
    "copy_": (into_new, lambda h: h * 1),
    "copy_, broadcast": (into_wide, lambda h: h.expand(2, *h.shape)[0]),
    "copy_ over itself": (over_itself, lambda h: (h * 1) * 2),
    "t_": (turned, lambda h: (h * 1).t().t()),
    "t_, unsqueeze_, squeeze_, transpose_": (
        turned_twice,
        lambda h: (((h * 1).t() * 2).unsqueeze(0) + 1).squeeze(0).transpose(0, 1),
    ),
}


def net(between) -> Net:
    torch.manual_seed(0)
    return Net(lambda m, x: m.b(between(torch.tanh(m.a(x)))), a=nn.Linear(4, 6), b=nn.Linear(6, 3))


@pytest.mark.parametrize(
    "name, mode, gradient", pairwise([*TWINS], ["layerwise", "full"], ["reverse", "both", "weights"])
)
def test_its_twin(name: str, mode: str, gradient: str):
    for fraction in (1.0, 0.5):
        rr, twin = (Racecar(net(f), X, mode, fraction=fraction, gradient=gradient) for f in TWINS[name])
        for data in (X, X + 0.1):
            assert_same(step(rr, data), step(twin, data))
        torch.testing.assert_close(rr.reconstruct(X), twin.reconstruct(X))


def into_part(h):
    made = torch.zeros(h.shape)
    made[:, :3].copy_(h[:, :3])
    return made


def added_to_view(h):
    made = torch.zeros(h.shape)
    made.view(-1).add_(h.view(-1))
    return made


def into_cache(h):
    cache = torch.zeros(3, *h.shape)
    for i in range(3):
        cache[i].copy_(h * i)
    return torch.tanh(cache.sum(0))


PARTS = {"a slice": into_part, "a view": added_to_view, "a cache": into_cache}


@pytest.mark.parametrize("name", PARTS)
def test_what_is_written_into_a_constant_is_data(name: str):
    """The layer behind it is not lost; its d is what it saw: its weight is 0, so that d' is 0."""
    model = net(PARTS[name])
    nn.init.zeros_(model.b.weight)
    rr = Racecar(model, X, weight=1.0, scale="sum", reduction="sum")
    rr(X)
    assert list(rr.terms) == ["a", "b"]
    seen = PARTS[name](torch.tanh(model.a(X)))
    torch.testing.assert_close(rr.terms["b"], seen.square().sum().detach())
    part = Racecar(model, X, fraction=0.5)
    with pytest.warns(UserWarning, match="fraction is ignored: the batch dimension cannot be followed"):
        part(X)


def emptied(h):
    h = h * 1
    h.fill_diagonal_(0)
    return h


def overwritten(h):
    h = h * 1
    h.copy_(torch.ones(6))
    return h


@pytest.mark.parametrize("change", [emptied, overwritten])
def test_where_the_way_back_ends(change):
    """The layers before and after it are constrained as if each were alone."""
    model = net(change)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoRuleWarning)
        rr = Racecar(model, X, mode="auto", weight=1.0)
    rr(X)
    d = torch.tanh(model.a(X)).detach()
    for name, layers, x in (("a", [model.a, nn.Tanh()], X), ("b", [model.b], change(d))):
        alone = Racecar(nn.Sequential(*layers), x, weight=1.0)
        alone(x)
        torch.testing.assert_close(rr.terms[name], alone.terms["0"])


def test_an_operation_without_a_rule_is_named():
    with pytest.warns(NoRuleWarning, match="no rule for 'fill_diagonal': the reverse pass from layer 'b' ends there"):
        Racecar(net(emptied), X)

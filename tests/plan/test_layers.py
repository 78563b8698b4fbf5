"""d_m, what is re-applied, what is undone and the name of each layer, for all nets of `tests/cases`."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from racecar import NoRuleWarning
from tests.by_hand import Net, close, rebuild, squares
from tests.cases import CASES, rows
from tests.losses import classic
from tests.networks import NETWORKS, call


def copied(inputs: Any) -> Any:
    """In-place models change their inputs."""
    return tuple(x.clone() for x in inputs) if isinstance(inputs, tuple) else inputs.clone()


@pytest.mark.parametrize("mode", ["auto", "layerwise"])
@pytest.mark.parametrize("name", CASES)
def test_by_hand(name: str, mode: str):
    """Names, terms, loss, gradients and reconstructions."""
    net, inputs, by_hand = CASES[name]()
    layers = by_hand(net, copied(inputs))
    rebuilt = rebuild(layers, mode == "layerwise")
    expected = {layer.name: squares(layer.d - rebuilt[layer.name]) for layer in layers}
    wanted = [p for p in net.parameters() if p.requires_grad]
    gradient = torch.autograd.grad(sum(expected.values()), wanted, allow_unused=True, materialize_grads=True)

    rr = classic(net, copied(inputs), mode=mode, scale="sum")
    torch.manual_seed(1)  # for dropout
    _, loss = call(rr, copied(inputs))
    assert list(rr.terms) == [entry.name for entry in rr.plan] == list(expected)
    close(rr.terms, {one: term.detach() for one, term in expected.items()})
    close(loss, sum(expected.values()))
    ours = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
    for one, theirs in zip(ours, gradient, strict=True):
        close(one, theirs)

    torch.manual_seed(1)
    made = dict(zip(rr.terms, call(rr.reconstruct, copied(inputs)), strict=True))
    close(made, {one: rebuilt[one].detach() for one in made})
    if mode == "auto" and not name.startswith("join"):  # where the way is unique, mode "full" takes it, too
        rr.mode = "full"
        torch.manual_seed(1)
        close(call(rr, copied(inputs))[1], loss)


CHANGES = {
    "of a slice": (lambda h: h[:, :4].relu_(), lambda h: torch.cat([h[:, :4].relu(), h[:, 4:]], 1)),
    "of a view": (lambda h: h.view(-1).relu_(), torch.relu),
    "of a part": (lambda h: h.narrow(1, 0, 4).mul_(3), lambda h: torch.cat([3 * h[:, :4], h[:, 4:]], 1)),
    "by setitem": (lambda h: h.__setitem__((slice(None), 0), 1.0), lambda h: torch.cat([h[:, :1] ** 0, h[:, 1:]], 1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_d_is_what_the_next_layer_saw(change: str):
    """Also if a tensor is changed through another one. The next layer's weight is 0, so that d' is 0."""
    in_place, apart = CHANGES[change]

    def forward(m, x):
        h = m.a(x)
        in_place(h)
        return m.b(h)

    net, x = Net(forward, a=nn.Linear(6, 8), b=nn.Linear(8, 4)).double(), rows()
    nn.init.zeros_(net.b.weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoRuleWarning)  # for a part that is changed nobody promises a rule
        rr = classic(net, x, mode="layerwise", scale="sum", weight={"b": 1})
    rr(x)
    close(rr.terms["b"], squares(apart(net.a(x))).detach())


def test_a_layer_that_sees_no_data_is_listed_with_a_reason():
    net = Net(lambda m, x: m.a(x) + m.style(m.code), a=nn.Linear(6, 4), style=nn.Linear(3, 4))
    net.code = nn.Parameter(torch.randn(1, 3))
    entries = {entry.name: entry for entry in classic(net, torch.randn(5, 6)).plan}
    assert set(entries) == {"a", "style"}
    assert entries["a"].constrained
    assert not entries["style"].constrained
    assert "input" in entries["style"].reason


class Twice(nn.Linear):
    def forward(self, x):
        return super().forward(torch.tanh(super().forward(x)))


class Pair(nn.Module):
    """Two names for one module."""

    def __init__(self):
        super().__init__()
        self.one = self.other = nn.Linear(6, 6)

    def forward(self, x):
        return self.other(torch.tanh(self.one(x)))


NAMES = {
    "a reused model": (lambda: (Twice(6, 6), torch.randn(3, 6)), ["", "#2"]),
    "two names of one module": (lambda: (Pair(), torch.randn(3, 6)), ["one", "one#2"]),
    "weights of the model itself": (NETWORKS["bare_weights"], ["kernel", "weight"]),
    "a weight tied to an embedding": (NETWORKS["language_model"], ["hidden", "head"]),
    "self-attention": (NETWORKS["attention"], ["embed", "attention", "attention.out_proj", "head"]),
    "no modules between": (NETWORKS["functional"], ["conv1", "conv2", "conv3", "fc1", "fc2"]),
    "parametrised": (NETWORKS["spectral_norm"], ["0", "4", "6"]),
}


@pytest.mark.parametrize("case", NAMES)
def test_names(case: str):
    build, expected = NAMES[case]
    model, inputs = build()
    assert [entry.name for entry in classic(model, inputs).plan] == expected

"""What can be looked at: the plan as a table, and reconstructions."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from racecar import NotReversible, Racecar
from tests.by_hand import Net, close, undo_linear
from tests.losses import classic


def rows(size: int = 5) -> Tensor:
    return torch.randn(size, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def chain() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def residual() -> Net:
    def forward(m, x):
        h = torch.tanh(m.a(x))
        return m.head(torch.tanh(m.c(torch.tanh(m.b(h))) + h))

    parts = {"a": nn.Linear(4, 6), "b": nn.Linear(6, 5), "c": nn.Linear(5, 6), "head": nn.Linear(6, 3)}
    return Net(forward, **parts).double()


def normed() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)),
    ).double()


@pytest.mark.parametrize("training", [True, False])
def test_reconstruct_leaves_no_trace(training: bool):
    model, x = normed().train(training), rows(8)
    rr = classic(model, x, fraction=0.25)
    _, loss = rr(x)
    terms = dict(rr.terms)
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    state = torch.random.get_rng_state()
    made = rr.reconstruct(x)
    assert len(made) == len(list(rr.plan))
    assert made[0].shape == x.shape, "the whole batch, whatever the fraction"
    assert not any(one.requires_grad for one in made)
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert rr.terms == terms
    assert model.training is training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_reconstruct_with_gradient():
    model, x = normed().eval(), rows(8)
    made = classic(model, x).reconstruct(x, grad=True)
    made[0].square().sum().backward()
    assert model[0].weight.grad.abs().max() > 0


def test_reconstruct_takes_keyword_arguments():
    model = Net(lambda m, *, image: m.a(image), a=nn.Linear(4, 3)).double()
    rr = classic(model, {"image": rows()})
    (made,) = rr.reconstruct(image=rows())
    close(made, undo_linear(model.a, model.a(rows())).detach())


NETS = {
    "layerwise": (normed, "layerwise"),
    "full": (normed, "full"),
    "input": (chain, "input"),
    "residual": (residual, "auto"),
    "in place": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)).double(), "layerwise"),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("weight", [0, {"*": 0}, torch.zeros(())], ids=str)
@pytest.mark.parametrize("name", NETS)
def test_reconstruct_at_weight_0_is_that_of_any_other(name: str, weight: Any, training: bool):
    """At weight 0 reconstruct gives the same as with any other weight; the plan says that nothing is compared."""
    build, mode = NETS[name]
    model, x = build().train(training), rows(8)
    plain, late = Racecar(model, x, mode, weight=weight), Racecar(model, x, mode, weight=0.1)
    torch.manual_seed(0)  # of dropout
    expected = late.reconstruct(x)
    assert all(one is not None for one in expected)
    late.weight = weight
    for rr in (plain, late):
        plan = str(rr.plan)
        torch.manual_seed(0)
        close(rr.reconstruct(x), expected)
        assert str(rr.plan) == plan
        assert not any(entry.constrained for entry in rr.plan)
        output, loss = rr(x)
        assert loss == 0
        assert rr.terms == {}


def test_reconstruct_at_weight_0_leaves_frozen_layers_out():
    model, x = chain(), rows()
    model[2].requires_grad_(False)
    expected = Racecar(model, x).reconstruct(x)
    assert [one is None for one in expected] == [False, True, False]
    made = Racecar(model, x, weight=0).reconstruct(x)
    assert [one is None for one in made] == [False, True, False]


def test_reconstruct_at_weight_0_refuses_what_the_mode_cannot():
    rr = Racecar(residual(), rows(), mode="full", weight=0)
    rr(rows())
    with pytest.raises(NotReversible, match="'full'"):
        rr.reconstruct(rows())

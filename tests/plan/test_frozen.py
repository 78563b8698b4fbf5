"""Frozen layers have no term; freezing is noticed in every call; they are still rebuilt."""

import copy
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from racecar import NothingToReverse, Racecar, functional, inspect
from racecar.reverse import eager_step, engine
from tests.by_hand import Net
from tests.losses import classic
from tests.pairwise import pairwise
from tests.steps import assert_same, step

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


def chain(*frozen: int, width: int = 5) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3))
    for i in frozen:
        model[i].requires_grad_(False)
    return model


def notes(rr: Racecar) -> dict[str, tuple[bool, str]]:
    return {entry.name: (entry.constrained, entry.reason) for entry in rr.plan}


FROZEN, MODES = [(0,), (2,), (4,), (0, 2), (0, 4)], ["layerwise", "full", "auto"]


@pytest.mark.parametrize("frozen, mode, gradient", pairwise(FROZEN, MODES, ["reverse", "both", "weights"]))
def test_a_frozen_layer_is_one_of_weight_0(frozen, mode, gradient):
    """A frozen layer is treated as one of weight 0: no term, but the reverse pass may go through it."""
    rr = Racecar(chain(*frozen), X, mode=mode, gradient=gradient)
    other = Racecar(chain(*frozen), X, mode=mode, gradient=gradient)
    for i in frozen:
        other.model[i].requires_grad_(True)
    other.weight = {"*": 0.001, **{str(i): 0 for i in frozen}}
    ours, theirs = step(rr, X), step(other, X)
    theirs.grads.update({name: None for name in theirs.grads if name.split(".")[1] in map(str, frozen)})
    assert_same(ours, theirs)
    passed = mode != "layerwise" and max(frozen) < 4
    for i in frozen:
        constrained, note = notes(rr)[str(i)]
        assert not constrained
        assert note in ("frozen", "frozen, passed through")
        assert (note == "frozen, passed through") == (passed or (mode != "layerwise" and i == 0))
    assert f"{3 - len(frozen)} of 3 layers constrained" in str(rr.plan)


def test_later_calls_notice_and_nothing_is_worked_out_twice():
    """Progressive unfreezing, and nets that are frozen and unfrozen in every step."""
    rr, fresh = Racecar(chain(0, 2), X), {}
    for frozen in ((0, 2), (0,), ()):
        fresh[frozen] = step(Racecar(chain(*frozen), X), X)
    for i, frozen in enumerate([(0, 2), (0,), (), (0, 2), (), (0,)]):
        for one in (0, 2, 4):
            rr.model[one].requires_grad_(one not in frozen)
        unused = (engine, "PreparedPlan") if i > 2 else (eager_step, "layer_graph_of")
        broken = patch.object(*unused, side_effect=AssertionError)
        with broken:
            assert_same(step(rr, X), fresh[frozen])
        assert [name for name, (on, _) in notes(rr).items() if not on] == [str(one) for one in frozen]


def test_a_schedule_of_the_weight_goes_on():
    rr = Racecar(chain(0), X)
    rr.weight = 0.5
    rr.model.requires_grad_(True)
    assert_same(step(rr, X), step(Racecar(chain(), X, weight=0.5), X))
    rr.model[4].requires_grad_(False)
    rr.weight = 0.25
    assert_same(step(rr, X), step(Racecar(chain(4), X, weight=0.25), X))


def test_all_frozen():
    model = chain(0, 2, 4)
    for make in (lambda: Racecar(model, X), lambda: functional.reverse_loss(model, X)):
        with pytest.raises(NothingToReverse, match="every layer of Sequential .* frozen .*requires_grad.*unfreeze"):
            make()
    with pytest.raises(NothingToReverse, match="frozen"):
        Racecar(chain(0), X, weight={"0": 1.0})
    assert Racecar(model, X, weight=0)(X)[1] == 0


def test_all_frozen_later():
    """As a discriminator is while the generator is trained."""
    rr = Racecar(chain(), X)
    rr.model.requires_grad_(False)
    output, loss = rr(X)
    assert torch.equal(output, rr.model(X))
    assert (loss, rr.terms) == (0, {})
    rr.model.requires_grad_(True)
    assert_same(step(rr, X), step(Racecar(chain(), X), X))


def test_in_mode_input_its_one_term_trains_all_layers():
    rr, other = Racecar(chain(0), X, mode="input"), Racecar(chain(), X, mode="input")
    ours, theirs = step(rr, X), step(other, X)
    assert list(rr.terms) == ["0"]
    assert ours.values["loss"] == theirs.values["loss"] > 0
    with pytest.raises(NothingToReverse, match="frozen"):
        Racecar(chain(0, 2, 4), X, mode="input")


class LowRank(nn.Module):
    """A frozen weight and what is learned beside it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4), requires_grad=False)
        self.down, self.up = nn.Parameter(torch.randn(1, 4)), nn.Parameter(torch.randn(4, 1))

    def forward(self, x):
        return nn.functional.linear(x, self.weight + self.up @ self.down)


def biased() -> nn.Linear:
    """The bias alone is trained."""
    layer = nn.Linear(4, 4)
    layer.weight.requires_grad_(False)
    return layer


def half_normed() -> nn.Module:
    layer = parametrizations.weight_norm(nn.Linear(4, 4))
    layer.parametrizations.weight.original0.requires_grad_(False)
    return layer


BEHIND = {
    "low rank": (LowRank, False),
    "low rank, frozen": (lambda: LowRank().requires_grad_(False), True),
    "the bias alone": (biased, True),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(4, 4)), False),
    "weight norm, in part": (half_normed, False),
    "weight norm, frozen": (lambda: parametrizations.weight_norm(nn.Linear(4, 4)).requires_grad_(False), True),
}


@pytest.mark.parametrize("name", BEHIND)
def test_what_stands_behind_a_weight(name):
    build, frozen = BEHIND[name]
    rr = classic(nn.Sequential(build(), nn.Tanh(), nn.Linear(4, 3)), X)
    assert [on for on, _ in notes(rr).values()] == [not frozen, True]


def test_plain_tensors_that_stand_in_for_parameters_freeze_nothing():
    rr = Racecar(chain(0), X)
    _, expected = rr(X)
    values = {name: p.detach() for name, p in rr.named_parameters()}
    _, loss = torch.func.functional_call(rr, values, (X,))
    torch.testing.assert_close(loss, expected)
    stacked = {name: torch.stack([p, p]) for name, p in values.items()}
    losses = torch.vmap(lambda some: torch.func.functional_call(rr, some, (X,))[1])(stacked)
    torch.testing.assert_close(losses, expected.expand(2))
    assert list(rr.terms or (rr(X) and rr.terms)) == ["2", "4"]


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_compiled(again):
    """A compiled step knows of the layers that were frozen when it was planned, and says so of others."""
    torch._dynamo.reset()
    rr = Racecar(chain(0), X)
    fast = torch.compile(rr, backend="eager", fullgraph=True)
    rr.model.requires_grad_(True)
    with pytest.raises(RuntimeError, match="frozen or unfrozen.*call the uncompiled Racecar once"):
        fast(X)
    if again:
        rr(X)
        torch.testing.assert_close(fast(X), Racecar(chain(), X)(X))
    torch._dynamo.reset()


def test_a_frozen_model_can_be_looked_at():
    model = chain(0, 2, 4, width=8)
    free = copy.deepcopy(model).requires_grad_(True)
    assert str(inspect.invertibility(model, X)) == str(inspect.invertibility(free, X))
    assert len(inspect.singular_vectors(model, "0", data=X)) == 4


def test_a_rule_of_ones_own_for_a_module():
    """All parameters of the module count."""
    from racecar import rules

    class Mine(nn.Linear):
        pass

    rules.register(Mine)(lambda op, y, shape: (y - op.module.bias) @ op.module.weight)
    try:
        model = Net(lambda m, x: m.b(torch.tanh(m.a(x))), a=Mine(4, 5), b=nn.Linear(5, 3))
        model.a.weight.requires_grad_(False)
        rr = Racecar(model, X)
        assert notes(rr)["a"][0]
        model.a.bias.requires_grad_(False)
        rr(X)
        assert notes(rr)["a"] == (False, "frozen")
    finally:
        rules.unregister(Mine)

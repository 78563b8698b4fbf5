"""Rules for one use: ``Racecar(…, rules={…})`` beside the global registry."""

import copy
import io

import pytest
import torch
from torch import nn

from racecar import Every, NoRuleWarning, Racecar
from racecar.functional import reverse_loss
from racecar.rules import Role, Rule, find, register, unregister
from tests.rules.test_registry import Odd, Odder, cube


def undo(op, y, shape):
    """Wrong on purpose, so that it shows: ones."""
    return torch.ones(shape)


def twos(op, y, shape):
    return 2 * torch.ones(shape)


def twice(op, y, shape):
    """2 y: with ``half`` behind it, y."""
    return 2 * y


def half(op, x):
    return x / 2


X = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))


def net(kind=Odd):
    torch.manual_seed(0)
    return nn.Sequential(kind(), nn.ReLU(), nn.Linear(3, 2))


def rebuilt(rr):
    return rr.reconstruct(X)[0]


ALONE = {"module": {Odd: undo}, "function": {cube: undo}, "rule": {Odd: Rule(Role.LAYER, "odd", undo)}}


@pytest.mark.parametrize("rules", ALONE.values(), ids=ALONE)
def test_for_this_racecar_alone(rules):
    """Another one of the same model, made before or after, knows nothing of it; neither does the registry."""
    model = net(Odder)
    with pytest.warns(NoRuleWarning):
        before = Racecar(model, X)
    rr = Racecar(model, X, rules=rules)
    with pytest.warns(NoRuleWarning):
        after = Racecar(model, X)
    assert all(find(kind) is None for kind in rules)
    assert [len(one.terms) for one in (before, rr, after) if one(X)] == [1, 2, 1]
    assert torch.equal(rebuilt(rr), torch.ones(4, 4))
    assert rebuilt(before) is rebuilt(after) is None
    rules.clear()
    assert next(iter(rr.rules.values())).apply is undo, "a change of the dict comes too late"


def test_stronger_than_the_registry():
    """For the same class or function; a rule for a nearer class wins, wherever it stands."""
    for registered, kind, rules, value in (
        (Odd, Odd, {}, 2), (Odd, Odd, {Odd: undo}, 1), (Odd, Odder, {Odd: undo}, 1), (Odd, Odd, {Odder: undo}, 2),
        (Odd, Odder, {Odder: undo}, 1), (Odder, Odder, {Odd: undo}, 2), (Odder, Odd, {Odd: undo}, 1),
    ):  # fmt: skip
        register(registered)(twos)
        try:
            assert torch.equal(rebuilt(Racecar(net(kind), X, rules=rules)), torch.full((4, 4), float(value)))
        finally:
            unregister(registered)
    x, model = torch.rand(4, 3), nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    plain, own = (Racecar(model, x, rules=rules) for rules in ({}, {torch.relu: HALF, nn.ReLU: HALF}))
    assert torch.equal(own.reconstruct(x)[1], ((model(x) - model[2].bias) @ model[2].weight) / 2)
    assert torch.equal(plain.reconstruct(x)[1], ((model(x) - model[2].bias) @ model[2].weight).relu())


HALF = Rule(Role.ACTIVATION, "half", half)


def test_everywhere_a_racecar_goes():
    """In another way through the model, in the pure function, with another model, copied, from a file, and for every
    second step."""
    rr = Racecar(net(), X, rules={Odd: undo})
    loss = rr(X)[1]
    assert torch.equal(reverse_loss(net(), X, rules={Odd: undo})[1], loss)
    file = io.BytesIO()
    torch.save(rr, file)
    file.seek(0)
    for other in (copy.deepcopy(rr), torch.load(file, weights_only=False)):
        assert torch.equal(other(X)[1], loss)
        assert list(other.terms) == ["0", "2"]
    every = Every(rr, 2)
    assert [rr(X)[1].item() for _ in range(3) if every.step() or True] == [2 * loss.item(), 0, 2 * loss.item()]
    rr.model = net(Odder)
    every.step(), every.step()
    rr(X)
    assert torch.equal(rebuilt(rr), torch.ones(4, 4))


@pytest.mark.soak
def test_compiled():
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    rr = Racecar(model, X, rules={nn.Linear: twice, nn.ReLU: HALF}, fraction=0.5)
    found = torch.compile(rr, backend="aot_eager", fullgraph=True)(X)
    torch.testing.assert_close(found, rr(X))
    first, second = X[:2], model[:2](X[:2])
    truth = [(2 * second - first).square().sum() / first.square().sum()]
    truth.append((model(first) - second).square().sum() / second.square().sum())
    torch.testing.assert_close(list(rr.terms.values()), truth)


@pytest.mark.parametrize(
    "rules, words",
    [
        ([Odd], "rules must be a dict from module classes or functions to rules, not list"),
        ({"relu": undo}, "a rule is for a module class or a function, not for 'relu'"),
        ({nn.ReLU(): undo}, "a rule is for a module class or a function, not for an instance: give ReLU"),
        ({dict: undo}, "a rule is for a module class or a function, not for <class 'dict'>"),
        ({Odd: "T"}, r"the rule of Odd must be a function \(op, y, shape\) -> x' or a racecar.rules.Rule, not str"),
    ],
)  # fmt: skip
def test_bad_ones(rules, words):
    with pytest.raises(TypeError, match=words) as caught:
        Racecar(net(), X, rules=rules)
    assert "\n" not in str(caught.value)


def test_a_bad_role():
    assert Rule("activation", "half", half).role is Role.ACTIVATION
    with pytest.raises(ValueError, match="role must be one of layer, norm.*, not 'join'"):
        Rule("join", "half", half)

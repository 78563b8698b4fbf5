"""Rules that cannot be meant, and rules that break their promise: one clear sentence."""

import functools
import re
from typing import Any

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.rules import Rule, find, register, unregister
from racecar.rules.roles import Role
from tests.losses import classic
from tests.test_bad_input import X, sentence


class Twist(nn.Linear):
    pass


BROKEN = {
    "wrong shape": (lambda op, y, shape: y.new_zeros(5, 7), ("(5, 7)", "(5, 6)")),
    "a missing dimension": (lambda op, y, shape: y.new_zeros(6), ("(6,)", "(5, 6)")),
    "no tensor": (lambda op, y, shape: None, ("NoneType", "(5, 6)")),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_rule_that_returns_something_else(case: str):
    """Names the rule, the layer and both shapes."""
    apply, words = BROKEN[case]

    def undo_twist(op, y, shape):
        return apply(op, y, shape)

    register(Twist)(undo_twist)
    try:
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), Twist(6, 3))
        rr = classic(model, X)
        with pytest.raises(ValueError, match="undo_twist") as caught:
            rr(X)
        message = sentence(caught.value)
        assert [word for word in ("'2'", *words) if word not in message] == []
    finally:
        unregister(Twist)


BAD_RULES = [
    ((), {}, TypeError, "register"),
    ((3,), {}, TypeError, "3"),
    ((Twist,), {"role": "weight"}, ValueError, "'weight'"),
    ((Twist,), {"role": 3}, ValueError, "'3'"),
    ((Twist,), {"role": Role.JOIN}, ValueError, "role must be one of layer.*'join'"),  # for a plan to say
    (("Twist",), {}, TypeError, "not for 'Twist'"),
    ((Twist(4, 3),), {}, TypeError, "give Twist"),
]


@pytest.mark.parametrize("kinds, settings, kind, word", BAD_RULES)
def test_bad_registration(kinds: tuple[Any, ...], settings: dict[str, Any], kind: type[Exception], word: str):
    with pytest.raises(kind, match=word) as caught:
        register(*kinds, **settings)
    sentence(caught.value)


def two(op, x):
    return op(x)


def three(op, y, shape):
    return y.expand(shape)


def many(*arguments):
    return arguments[1]


def with_default(op, y, shape=None):
    return y


def by_name(op, y, *, shape):
    return y


class Callable:
    def __call__(self, op, x):
        return x


FITS = {
    "layer": [three, many, with_default, functools.partial(lambda a, op, y, shape: y, 1), int],  # int has no signature
    "shape": [three],
    "resample": [three],
    "affine": [three],
    "select": [three],
    "norm": [two, many, with_default, Callable(), nn.Identity()],
    "activation": [two, functools.partial(three, shape=()), torch.relu],
    "pass": [two, three],  # whose function is not called
    "source": [two],
}
MISFITS = {
    "layer": [two, by_name, Callable(), 3, None, "undo", functools.partial(three, 1), torch.nn.functional.relu],
    "shape": [two],
    "resample": [two],
    "affine": [two],
    "select": [two],
    "norm": [three],
    "activation": [three, by_name, lambda x: x, 3],
}


def pairs(table: dict[str, list[Any]]) -> list[Any]:
    """Each role with each of its functions, named without an address: two workers must name tests alike."""
    return [
        pytest.param(role, one, id=f"{role}-{getattr(one, '__name__', type(one).__name__)}")
        for role in table
        for one in table[role]
    ]


@pytest.mark.parametrize("role, function", pairs(FITS))
def test_a_function_that_takes_what_its_role_gives(role: str, function: Any):
    try:
        assert register(Twist, role=role)(function) is function
        assert find(Twist).apply is function
    finally:
        unregister(Twist)


@pytest.mark.parametrize("role, function", pairs(MISFITS))
def test_a_function_that_does_not(role: str, function: Any):
    """Refused when it is registered; what was there stays."""
    before = find(Twist)
    wanted = "(op, x)" if role in ("norm", "activation") else "(op, y, shape)"
    for make in (register(Twist, role=role), functools.partial(Rule, role, "Twist")):
        with pytest.raises(TypeError, match=re.escape(f"must be a function {wanted}, not ")) as caught:
            make(function)
        assert "Twist" in sentence(caught.value)
        assert role in str(caught.value)
    assert find(Twist) is before


def test_a_rule_for_one_use():
    """A plain function is the rule of a layer; the message says what other roles take."""
    with pytest.raises(TypeError, match=r"Tanh.*\(op, y, shape\), not two\(op, x\): \(op, x\) is for.*'activation'"):
        Racecar(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), X, rules={nn.Tanh: two})


def test_a_lift_that_cannot_be_called():
    with pytest.raises(TypeError, match="lift of pool must be a function"):
        Rule("resample", "pool", three, lift=two)

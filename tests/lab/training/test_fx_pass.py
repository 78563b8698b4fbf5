"""Recordings give the same results after the pass that leaves out operations, in every call."""

import operator

import pytest
import torch

from racecar_lab.training.steps.recorded import record

HALF = torch.full((3,), 0.5)


def added(x):
    total = torch.zeros_like(x)
    total += x
    return total


def into_a_view(x):
    total = torch.zeros_like(x)
    total.view(-1)[0] += 1
    return total * 2 + x


def before_and_after(x):
    once = x * 1
    x += 1
    return once - x


def gradient(x):
    y = x.detach().requires_grad_()
    return torch.autograd.grad(((y**2).sum() * 3.0) * 1, y)[0]


FUNCTIONS = {
    "nothing but ones": torch.ones_like,
    "a view of ones": lambda x: torch.ones_like(x).view(3, 1),
    "in place": added,
    "in place, by a view": into_a_view,
    "once x": lambda x: x * 1,
    "once x, before it changes": before_and_after,
    "once x, in floats": lambda x: (x.long() * 1.0) / 2,
    "first power": lambda x: (x**1).exp(),
    "held": lambda x: x + HALF * 2,
    "two results": lambda x: torch.var_mean(x * torch.ones_like(x).mul(2)),
    "gradient": gradient,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_again_and_again(name):
    """The caller may change a result in place, which affects neither the next call nor the arguments."""
    function = FUNCTIONS[name]
    recorded = record(function, torch.rand(3))
    for seed in range(3):
        x = torch.rand(3, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            actual = recorded(x.clone())
        expected = function(x.clone())
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        argument, expected_argument = x.clone(), x.clone()
        function(expected_argument)
        with torch.no_grad():
            torch.utils._pytree.tree_map(lambda result: result.mul_(7), recorded(argument))
        assert torch.equal(argument, expected_argument)


def targets(function):
    graph = record(function, torch.rand(3)).__self__.graph
    return [node.target for node in graph.nodes if node.op == "call_function" and node.target is not operator.getitem]


def test_what_is_the_same_in_every_call_is_worked_out_once():
    assert targets(gradient) == [torch.mul, torch.mul], "2 y times what the loss makes of it"
    assert targets(FUNCTIONS["held"]) == [torch.add]
    assert targets(FUNCTIONS["first power"]) == [torch.ops.aten.exp.default]


def test_random_numbers_are_drawn_anew():
    recorded = record(lambda x: x + torch.rand_like(x) * torch.ones_like(x), torch.zeros(3))
    assert not torch.equal(recorded(torch.zeros(3)), recorded(torch.zeros(3)))

"""A dying net gives one warning with the layer, λ and what to try."""

import copy
import itertools
import pickle
import warnings

import pytest
import torch
from torch import Tensor, nn

from racecar import DeadLayerWarning, Every, Racecar
from racecar.reverse.health import CHECK_EVERY, CHECKS
from tests.losses import classic

STEPS = CHECK_EVERY * CHECKS


def net(dead: bool) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3))
    if dead:
        nn.init.constant_(model[2].bias, -100)  # the activation behind it, d of layer 4, is 0 for every input
    return model


def warnings_of(rr: nn.Module, batches: list[Tensor], grad: bool = True) -> list[str]:
    with warnings.catch_warnings(record=True) as caught, torch.set_grad_enabled(grad):
        warnings.simplefilter("always")
        for x in batches:
            rr(x)
    return [str(one.message) for one in caught if one.category is DeadLayerWarning]


def batches(count: int = 3 * STEPS) -> list[Tensor]:
    return list(torch.randn(count, 8, 4))


@pytest.mark.parametrize(
    "scale, mode",
    [*zip(["relative", "ratio", "anchored", "mean", "sum"], itertools.cycle(["full", "layerwise"]), strict=False)],
)
def test_an_activation_of_0(scale: str, mode: str):
    rr = classic(net(dead=True), torch.randn(8, 4), mode, scale=scale, weight={"*": 0.25, "0": 0.5})
    (message,) = warnings_of(rr, batches())
    assert "'4' (λ = 0.25)" in message
    assert "'0'" not in message
    assert "learning rate" in message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_term_that_is_not_finite(value: float):
    model = net(dead=False)
    rr = classic(model, torch.randn(8, 4), "layerwise")
    nn.init.constant_(model[2].weight, value)
    (message,) = warnings_of(rr, batches())
    assert "'2'" in message


@pytest.mark.parametrize("scale", ["relative", "sum"])
def test_no_false_alarm(scale: str):
    """No warning for healthy nets, a few blank batches, evaluation, calls without gradient, or a layer dead for few
    steps."""
    rr = classic(net(dead=False), torch.randn(8, 4), scale=scale)
    blank = [x * (i % STEPS >= STEPS - CHECK_EVERY) for i, x in enumerate(batches())]
    assert not warnings_of(rr, batches() + blank)
    dead = classic(net(dead=True), torch.randn(8, 4), scale=scale)
    assert not warnings_of(dead.eval(), batches())
    assert not warnings_of(dead.train(), batches(), grad=False)
    assert not warnings_of(dead, batches(STEPS - CHECK_EVERY))


def test_the_warning_comes_once_and_a_copy_can_be_made():
    rr = classic(net(dead=True), torch.randn(8, 4))
    assert len(warnings_of(rr, batches() * 3)) == 1
    assert not warnings_of(pickle.loads(pickle.dumps(rr)), batches())
    assert not warnings_of(copy.deepcopy(rr), batches())


def test_the_default_is_watched_too():
    assert len(warnings_of(Racecar(net(dead=True), torch.randn(8, 4)), batches())) == 1


@pytest.mark.parametrize("scale", ["relative", pytest.param("sum", marks=pytest.mark.soak)])
def test_a_compiled_step_is_looked_at_between_the_epochs(scale: str):
    """A compiled step cannot warn itself; train(), a new weight and Every check it afterwards."""
    torch._dynamo.reset()
    rr = classic(net(dead=True), torch.randn(8, 4), scale=scale)
    fast, every = torch.compile(rr, backend="eager", fullgraph=True), Every(rr, 1)
    found = []
    for touch in (rr.train, lambda: setattr(rr, "weight", 0.5), every.step, rr.train):
        found.append(len(warnings_of(fast, batches(2))))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            touch()
        found[-1] += len(caught)
    assert found == [0, 0, 1, 0]

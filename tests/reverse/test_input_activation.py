"""Values of ``input_activation``: each is tried once when it is set."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar import Racecar, functional
from tests.test_bad_input import X, chain, sentence

MEAN = X.mean(1, keepdim=True)
GOOD: dict[str, tuple[Any, Any]] = {
    "a name": ("relu", F.relu),
    "in place": ("relu_", F.relu),
    "of torch alone": ("square", torch.square),
    "not pointwise": ("normalize", F.normalize),
    "a module": (PRELU := nn.PReLU(4), PRELU),
    "with a constant of the data's size": (lambda x: x + MEAN, lambda x: x + MEAN),
}


@pytest.mark.parametrize("name", GOOD)
def test_it_is_applied_to_the_rebuilt_input(name: str):
    given, function = GOOD[name]
    model = chain()
    plain = Racecar(model, X).reconstruct(X)[0]
    found = Racecar(model, X, input_activation=given).reconstruct(X)[0]
    torch.testing.assert_close(found, function(plain).detach())


NAMES = [
    *("rellu", "nn", "", "cross_entropy", "linear", "glu", "max_pool2d", "batch_norm", "sum", "t", "argsort", "Tensor"),
    *("manual_seed", "set_default_dtype", "rand_like"),  # these must not even be tried
]
FUNCTIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a number": (3, ("3",)),
    "a class": (nn.ReLU, ("class ReLU", "instance")),
    "nothing": (lambda x: None, ("NoneType",)),
    "a part": (lambda x: x[:, :2], ("(5, 4)", "(5, 2)")),
    "a tuple": (lambda x: (x,), ("tuple",)),
    "flags": (lambda x: x > 0, ("torch.bool",)),
    "an error": (lambda x: x[9], ("IndexError",)),
    "of two": (lambda x, y: x, ("TypeError", "'y'")),
    "other channels": (nn.PReLU(7), ("PReLU", "7")),
}
BAD = {**{repr(name): (name, (name,)) for name in NAMES}, **FUNCTIONS}


@pytest.mark.parametrize("name", BAD)
def test_refused_at_construction(name: str):
    given, words = BAD[name]
    model, state, dtype = chain(), torch.get_rng_state(), torch.get_default_dtype()
    for build in (Racecar, functional.reverse_loss):
        with pytest.raises(ValueError, match="input_activation") as caught:
            build(model, X, input_activation=given)
        message = sentence(caught.value)
        assert [word for word in words if word not in message] == []
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() is dtype


class Noisy(nn.Module):
    """Draws a random number and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x.mul_(torch.rand(()))


def test_the_trial_leaves_no_trace():
    model, x, noisy = chain(), X.clone(), Noisy()
    state = torch.get_rng_state()
    Racecar(model, x, input_activation=noisy)
    assert noisy.calls == 0
    assert torch.equal(x, X)
    assert torch.equal(torch.get_rng_state(), state)


class Float(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.float()


@pytest.mark.parametrize("first", [nn.Embedding(9, 4), Float()])
def test_a_function_is_not_tried_on_integers(first: nn.Module):
    """The first d is what the embedding gives, and bytes cannot be compared with what a function makes of them."""
    model = nn.Sequential(first, nn.Linear(4, 3))
    Racecar(model, torch.tensor([[1, 2, 3, 4]]), input_activation=torch.sigmoid_)

"""No function of racecar.inspect changes the model, its inputs or the random state."""

import copy
import random

import numpy
import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from racecar import NothingToReverse
from racecar.inspect import activations, invertibility, leakage, singular_vectors
from tests.by_hand import Net
from tests.inspect.common import X
from tests.losses import classic
from tests.networks import NETWORKS

LOOKS = {
    "activations": activations,
    "invertibility": invertibility,
    "invertibility, running": lambda model, inputs: invertibility(model, inputs, statistics="running"),
    "leakage": leakage,
    "singular vectors": lambda model, inputs: singular_vectors(model, first_layer(model, inputs), data=inputs),
    "operator": lambda model, inputs: singular_vectors(
        model, first_layer(model, inputs), 3, data=inputs, operator=True
    ),
}


def first_layer(model, inputs):
    return classic(copy.deepcopy(model), inputs).plan[0].name


def random_states():
    kind, keys, *rest = numpy.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), (kind, keys.tolist(), *rest)


def noisy():
    """Draws from every source of random numbers, and keeps a count of its own."""

    def forward(m, x):
        m.calls += 1
        h = m.drop(m.first(x)) + random.random() + float(numpy.random.rand())
        return m.last(torch.tanh(h) * torch.rand_like(h))

    model = Net(forward, drop=nn.Dropout(), first=nn.Linear(6, 8), last=nn.Linear(8, 3))
    model.register_buffer("calls", torch.zeros(()))
    return model, X.clone()


def half_in_training():
    model, x = NETWORKS["paper_net"]()
    model.bn1.eval()
    model.conv1.requires_grad_(False)
    return model, x


STILL = ["vgg", "mlp_norm", "spectral_norm", "attention", "text"]
MODELS = {**{name: NETWORKS[name] for name in STILL}, "noisy": noisy, "half in training": half_in_training}


NO_PICTURES = ("attention", "text", "noisy")
WAYS = [(name, look) for name in MODELS for look in LOOKS if look != "operator" or name not in NO_PICTURES]


@pytest.mark.parametrize("name, look", WAYS)
def test_looking_leaves_no_trace(name, look):
    model, inputs = MODELS[name]()
    given = copy.deepcopy(inputs)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)

    def state():
        return (
            [(type(module), module.training, tuple(vars(module))) for module in model.modules()],
            [(id(p), p._version, p.requires_grad, id(p.grad), p.grad._version) for p in model.parameters()],
            [(key, id(buffer), buffer._version) for key, buffer in model.named_buffers()],
            [key for module in model.modules() for key, value in vars(module).items() if "_hooks" in key and value],
            random_states(),
            _get_current_function_mode_stack(),
            torch.is_grad_enabled(),
        )

    before, weights = state(), copy.deepcopy(model.state_dict())
    LOOKS[look](model, inputs)
    assert state() == before
    torch.testing.assert_close(model.state_dict(), weights, rtol=0, atol=0)
    torch.testing.assert_close(inputs, given, rtol=0, atol=0)


@pytest.mark.parametrize("look", [look for look in LOOKS if look != "operator"])
def test_a_model_that_changes_its_input(look):
    """The caller's inputs are not changed, and a second call gives the same result."""
    torch.manual_seed(0)
    model, x = Net(lambda m, x: m.a(x.mul_(2)), a=nn.Linear(6, 3)), X.clone()
    LOOKS[look](model, x)
    assert torch.equal(x, X)
    first, _ = activations(model, x)
    assert torch.equal(first.tensor, X)


@pytest.mark.parametrize("look", LOOKS)
def test_a_model_that_raises_is_put_back(look):
    """Training modes are restored after an error."""

    def forward(m, x):
        x = m.drop(m.norm(m.conv(x)))
        if m.broken:
            raise KeyError("broken")
        return x

    parts = {"conv": nn.Conv2d(1, 2, 3), "norm": nn.BatchNorm2d(2), "drop": nn.Dropout(), "broken": False}
    model, x = Net(forward, **parts), torch.rand(2, 1, 14, 14)
    model.norm.eval()
    flags = [module.training for module in model.modules()]
    LOOKS[look](model, x)
    model.broken = True
    with pytest.raises(ValueError, match="broken"):
        activations(model, x) if look in ("singular vectors", "operator") else LOOKS[look](model, x)
    assert [module.training for module in model.modules()] == flags


def test_under_any_grad_mode():
    model, x = NETWORKS["vgg"]()
    truth = [one.tensor for one in activations(model, x)]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for one, other in zip(activations(model, x), truth, strict=True):
                assert torch.equal(one.tensor, other)
            for look in LOOKS.values():
                look(model, x)
    x.requires_grad_()
    assert not any(one.tensor.requires_grad for one in activations(model, x)[1:])
    assert x.grad is None


@pytest.mark.parametrize("look", ["activations", "invertibility", "leakage"])
def test_bad_input(look):
    look, model = LOOKS[look], nn.Linear(6, 3)
    with pytest.raises(TypeError, match="model must be a torch.nn.Module, not function"):
        look(lambda x: x, X)
    with pytest.raises(TypeError, match="a tensor, a tuple of positional arguments or a dict"):
        look(model, "x")
    with pytest.raises(ValueError, match="Linear does not accept example_inputs"):
        look(model, X[:, :5])
    with pytest.raises(NothingToReverse, match="ReLU has no weighted layer"):
        look(nn.ReLU(), X)


@pytest.mark.parametrize("look", ["invertibility", "leakage"])
def test_no_samples(look):
    with pytest.raises(ValueError, match="sample|empty"):
        LOOKS[look](nn.Linear(6, 3), X[:0])

"""A Racecar does not change the model: outputs, buffers, random numbers, hooks, gradients, copies."""

import contextlib
import copy
import pickle
import random
from collections import OrderedDict

import numpy
import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from tests.by_hand import Net
from tests.losses import classic
from tests.networks import NETWORKS, call, rows, seeded, sequence, soak_others
from tests.steps import leaves, task


def noisy(m, x):
    """Draws from every source of random numbers."""
    h = m.drop(m.first(x)) + random.random() + float(numpy.random.rand())
    return m.last(torch.tanh(h) * torch.rand_like(h))


def half_trained(m, x):
    """A frozen encoder in eval mode, which torch fuses, beside layers that train."""
    with torch.no_grad():
        h = m.encoder(x)
    return m.last(m.drop(m.norm(h.mean(1))))


def encoder_layer():
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


def half_trained_net():
    encoder = encoder_layer().requires_grad_(False)
    return Net(half_trained, encoder=encoder, norm=nn.BatchNorm1d(8), drop=nn.Dropout(), last=nn.Linear(8, 3))


OURS = {
    "noisy": lambda: (Net(noisy, drop=nn.Dropout(), first=nn.Linear(6, 8), last=nn.Linear(8, 3)), rows()),
    "changes_its_input": lambda: (Net(lambda m, x: m.a(x.tanh_()), a=nn.Linear(6, 3)), rows()),
    "encoder_stack": lambda: (nn.TransformerEncoder(encoder_layer(), 2), sequence(8)),
    "multihead": lambda: (
        Net(lambda m, x: m.a(x, x, x, need_weights=False)[0], a=nn.MultiheadAttention(8, 2, batch_first=True)),
        sequence(8),
    ),
    "half_frozen": lambda: (
        nn.Sequential(encoder_layer().requires_grad_(False), encoder_layer(), nn.Linear(8, 3)),
        sequence(8),
    ),
    "half_trained": lambda: (half_trained_net(), sequence(8)),
}
CASES = {name: seeded(build) for name, build in OURS.items()} | NETWORKS
GRADS = {"grad": contextlib.nullcontext, "no grad": torch.no_grad, "inference": torch.inference_mode}


def seed():
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)


def random_states():
    kind, keys, *rest = numpy.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), (kind, keys.tolist(), *rest)


def hooks(model):
    """Every hook of every module, and the global ones."""
    found = {
        (name, key): tuple(value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key.endswith("_hooks") or "_hooks_" in key
    }
    everywhere = {key: value.copy() for key, value in vars(nn.modules.module).items() if isinstance(value, OrderedDict)}
    return found, everywhere, _get_current_function_mode_stack()


def switch(model, how):
    """Train or eval, or both: "half" leaves only the encoder in eval mode."""
    model.train(how != "eval")
    if how == "half":
        model.encoder.eval()


@pytest.mark.parametrize("name", [*OURS, *soak_others()])
def test_a_call_is_a_call_of_the_model(name):
    check_call(name, "train")


@pytest.mark.parametrize("name", [*OURS, "vgg", "functional", "encoder", "spectral_norm"])
def test_a_call_in_evaluation_is_a_call_of_the_model(name):
    """These have dropout, norms, or a path that torch fuses in evaluation."""
    check_call(name, "eval")


def test_a_call_is_a_call_of_a_model_of_which_a_part_is_in_evaluation():
    check_call("half_trained", "half")


def check_call(name, how):
    model, inputs = CASES[name]()
    switch(model, how)
    alone = copy.deepcopy(model)
    rr = classic(model, inputs)
    for grad in GRADS.values():
        results = []
        for run in (alone, rr):
            seed()
            with grad():
                made = call(run, copy.deepcopy(inputs))
            results.append((leaves(made[0] if run is rr else made), random_states()))
        (expected, state), (output, ours) = results
        assert len(output) == len(expected) > 0
        assert all(map(torch.equal, output, expected))
        assert [leaf.requires_grad for leaf in output] == [leaf.requires_grad for leaf in expected]
        assert ours == state
        for (key, buffer), other in zip(model.named_buffers(), alone.buffers(), strict=True):
            assert torch.equal(buffer, other), key


@pytest.mark.parametrize("name", [*OURS, *soak_others()])
def test_construction_leaves_everything_as_it_was(name):
    model, inputs = CASES[name]()
    given = copy.deepcopy(inputs)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = copy.deepcopy(model.state_dict())
    flags = [(module.training, tuple(vars(module))) for module in model.modules()]
    parameters = [(id(p), p._version, p.requires_grad) for p in model.parameters()]
    seed()
    states, hooked = random_states(), hooks(model)
    rr = classic(model, inputs)
    assert random_states() == states
    assert hooks(model) == hooked
    assert [(module.training, tuple(vars(module))) for module in model.modules()] == flags
    assert [(id(p), p._version, p.requires_grad) for p in model.parameters()] == parameters
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters())
    torch.testing.assert_close(inputs, given, rtol=0, atol=0)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert [f"model.{key}" for key in before] == list(rr.state_dict())
    assert [id(p) for p in rr.parameters()] == [id(p) for p in model.parameters()]
    call(rr, inputs)
    assert hooks(model) == hooked
    assert [(module.training, tuple(vars(module))) for module in model.modules()] == flags


@pytest.mark.parametrize("name", ["vgg", "resnet", "attention", "spectral_norm", "tied"])
def test_gradients_of_what_is_not_constrained(name):
    """With weight 0 a step equals the plain step bit for bit."""
    model, x = NETWORKS[name]()
    other = torch.ones(3, requires_grad=True)
    results = []
    for weight in (None, 0):
        run = copy.deepcopy(model)
        if weight is not None:
            wrapped = classic(run, x)
            wrapped.weight = weight
        seed()
        output, loss = (run(x), 0) if weight is None else wrapped(x)
        assert weight is None or (loss.item() == 0 and not wrapped.terms)
        (task(output) + loss).backward()
        results.append([p.grad for p in run.parameters()])
    assert all(a is b if a is None or b is None else torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert other.grad is None


def test_the_loss_alone_reaches_only_what_it_constrains():
    model, x = NETWORKS["vgg_plain"]()
    rr = classic(model, x, weight={"features.0": 1})
    _, loss = rr(x)
    assert all(p.grad is None for p in model.parameters())
    loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is not None] == [
        "features.0.weight",
        "features.0.bias",
    ]
    assert x.grad is None


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.broken = nn.Linear(6, 3), False

    def forward(self, x):
        x = self.layer(x)
        if self.broken:
            raise KeyError("broken")
        return x


@pytest.mark.parametrize("when", ["construction", "call"])
def test_a_model_that_raises(when):
    model, x = Fails(), rows()
    rr = classic(model, x)
    hooked = hooks(model)
    seed()
    states = random_states()
    model.broken = True
    if when == "call":
        with pytest.raises(KeyError, match="broken"):
            rr(x)
    else:
        with pytest.raises(ValueError, match="KeyError: 'broken'"):
            classic(model, x)
    assert hooks(model) == hooked
    assert random_states() == states


@pytest.mark.parametrize("name", ["vgg", "resnet_pad", "attention", "weight_norm", "branching", "gated_fused"])
def test_copies(name):
    model, x = NETWORKS[name]()
    rr = classic(model.eval(), x, weight={"*": 0.5}, fraction=0.5)
    expected, loss = rr(x)
    loss.backward()  # what a call leaves behind can be copied as well
    deep = copy.deepcopy(model)
    assert torch.equal(deep(x), expected)
    if name != "weight_norm":  # torch cannot pickle a parametrised module
        assert torch.equal(pickle.loads(pickle.dumps(model))(x), expected)
    other = copy.deepcopy(rr)
    output, again = other(x)
    assert torch.equal(output, expected)
    assert torch.equal(again, loss)
    assert (other.weight, other.fraction) == ({"*": 0.5}, 0.5)
    assert [str(e) for e in other.terms] == [str(e) for e in rr.terms]
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert torch.equal(rr(x)[1], loss)
    assert not torch.equal(other(x)[1], loss)


def getters(m, x):
    """Properties that make a tensor, which torch names by objects that Python cannot copy; and a join."""
    y = torch.tanh(m.b(m.a(x).T.mT.mH.H.real))
    return m.c(torch.tanh(m.c(y) + x))


def test_a_copy_of_a_model_that_uses_properties():
    """It keeps its plan, follows other settings, and says the same of its layers."""
    torch.manual_seed(0)
    net, x = Net(getters, a=nn.Linear(4, 4), b=nn.Linear(4, 4), c=nn.Linear(4, 4)), torch.randn(3, 4)
    rr = classic(net, x)
    other = copy.deepcopy(rr)
    assert other.plan is not rr.plan
    for mode in ("auto", "layerwise"):
        rr.mode = other.mode = mode
        assert str(other.plan) == str(rr.plan)
        assert torch.equal(other(x)[1], rr(x)[1])

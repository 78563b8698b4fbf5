"""Activations compared with forward hooks and with cases by hand, and the choice of layers."""

import copy
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from racecar.inspect import activations
from tests.by_hand import Net, close
from tests.cases import CASES
from tests.inspect.common import X
from tests.losses import classic
from tests.networks import NETWORKS, call, soak_others


def names(found):
    return [(one.name, one.layer) for one in found]


# --- what they are


@pytest.mark.parametrize("name", CASES)
def test_by_hand(name):
    """Each d_m, written out by hand for every kind of thing that can stand between two layers."""
    model, inputs, by_hand = CASES[name]()
    found = activations(model, copy.deepcopy(inputs))
    layers = by_hand(model.eval(), inputs)
    assert names(found) == [
        *((f"d{i + 1}", layer.name) for i, layer in enumerate(layers)),
        (f"d{len(layers) + 1}", "output"),
    ]
    for one, layer in zip(found, layers, strict=False):
        close(one.tensor, layer.d.detach())


SEEN_AS = {
    "itself": lambda d: d,
    "flattened": lambda d: d.flatten(1),
    "pooled": lambda d: F.max_pool2d(d, 2),
    "averaged": lambda d: F.avg_pool2d(d, 2),
    "pooled and flattened": lambda d: F.max_pool2d(d, 2).flatten(1),
    "averaged over the picture": lambda d: d.mean((2, 3)),
    "nearest": lambda d: F.interpolate(d, scale_factor=2),
    "bilinear": lambda d: F.interpolate(d, scale_factor=2, mode="bilinear"),
    "averaged over tokens": lambda d: d.mean(1),
    "transposed": lambda d: d.transpose(1, 2),
    "largest": lambda d: d.amax(2),
    "heads": lambda d: d.transpose(1, 2).flatten(2),
    "scaled": lambda d: d * 0.5,
}
IN_MODULES = [name for name in NETWORKS if name not in ("bare_weights", "tied_autoencoder")]


@pytest.mark.parametrize("name", soak_others(IN_MODULES))
def test_what_hooks_see(name):
    """The input of a layer's module is d_m, or d_m pooled, flattened or transposed."""
    model, inputs = NETWORKS[name]()
    found = activations(model, inputs)[:-1]
    seen = {}

    def look(called):
        def hook(module, args):
            if not args:  # a model called by keywords, a parametrisation
                return
            count = sum(key.partition("#")[0] == called for key in seen)
            seen[called if count == 0 else f"{called}#{count + 1}"] = args[0].clone()

        return hook

    model.eval()
    for called, module in model.named_modules():
        module.register_forward_pre_hook(look(called))
    with torch.no_grad():
        call(model, inputs)
    compared = 0
    for one in found:
        if one.layer not in seen or one.layer.endswith(("out_proj", "self_attn", "attention")):
            continue  # attention does not call its parts as modules
        forms = []
        for form in SEEN_AS.values():
            try:
                forms.append(form(one.tensor))
            except (RuntimeError, IndexError, NotImplementedError, ValueError):
                continue
        x = seen[one.layer]
        assert any(x.shape == form.shape and torch.allclose(x, form, atol=1e-6) for form in forms), one.layer
        compared += 1
    assert compared > 0


def test_every_activation_of_a_net_in_evaluation():
    """Evaluation mode although the model is in training: running statistics, no dropout; d_m as it was before an in-
    place relu."""
    torch.manual_seed(0)
    model = nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(3, 4, 3), norm=nn.BatchNorm2d(4), relu=nn.ReLU(inplace=True), drop=nn.Dropout(),
            pool=nn.MaxPool2d(2), flat=nn.Flatten(), fc=nn.Linear(36, 5), tanh=nn.Tanh(), last=nn.Linear(5, 3),
            softmax=nn.Softmax(1),
        )
    )  # fmt: skip
    model.norm.running_mean.normal_()
    x = torch.rand(4, 3, 8, 8)
    found = activations(model, x)
    assert model.training
    model.eval()
    with torch.no_grad():
        d2 = torch.relu(model.norm(model.conv(x)))
        d3 = torch.tanh(model.fc(F.max_pool2d(d2, 2).flatten(1)))
        d4 = torch.softmax(model.last(d3), 1)
    assert [(one.name, one.layer, one.kind, one.range) for one in found] == [
        ("d1", "conv", "input", None),
        ("d2", "fc", "relu", None),
        ("d3", "last", "tanh", (-1, 1)),
        ("d4", "output", "softmax", (0, 1)),
    ]
    for one, truth in zip(found, (x, d2, d3, d4), strict=True):
        torch.testing.assert_close(one.tensor, truth)


BOUNDED = {
    "tanh": (torch.tanh, (-1, 1)),
    "sigmoid": (torch.sigmoid, (0, 1)),
    "expit": (torch.special.expit, (0, 1)),
    "hardsigmoid": (F.hardsigmoid, (0, 1)),
    "softsign": (F.softsign, (-1, 1)),
    "softmax": (lambda h: h.softmax(-1), (0, 1)),
    "softmin": (lambda h: F.softmin(h, -1), (0, 1)),
    "in place": (lambda h: h.sigmoid_(), (0, 1)),
    "erf": (torch.erf, (-1, 1)),
}
UNBOUNDED = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "log_softmax": lambda h: h.log_softmax(-1),
    "layer_norm": lambda h: F.layer_norm(h, (6,)),
    "by hand": lambda h: h * torch.sigmoid(h),
    "join": lambda h: torch.sigmoid(h) + torch.tanh(h.flip(1)),
}


@pytest.mark.parametrize("name", [*BOUNDED, *UNBOUNDED])
def test_ranges(name):
    """No value is outside the range that an activation states, however large the weights are."""
    function, bounds = BOUNDED.get(name) or (UNBOUNDED[name], None)
    torch.manual_seed(0)
    model = Net(lambda m, x: m.b(function(m.a(x))), a=nn.Linear(6, 6), b=nn.Linear(6, 2))
    _, d2, output = activations(model, 100 * X)
    assert d2.range == bounds
    assert output.range is None
    if bounds is not None:
        assert bounds[0] <= d2.tensor.min()
        assert d2.tensor.max() <= bounds[1]
    model = Net(lambda m, x: function(m.a(x)), a=nn.Linear(6, 6))
    output = activations(model, X)[-1]
    assert output.layer == "output"
    assert output.range == bounds
    if name != "join":
        torch.testing.assert_close(output.tensor, model(X).detach())


@pytest.mark.parametrize("name", soak_others())
def test_every_network(name):
    model, inputs = NETWORKS[name]()
    found = activations(model, inputs)
    plan = classic(model.eval(), inputs).plan
    assert names(found) == [*((f"d{i + 1}", e.name) for i, e in enumerate(plan)), (f"d{len(plan) + 1}", "output")]
    for one in found:
        assert not one.tensor.requires_grad
        if one.range is not None:
            assert one.range[0] <= one.tensor.min()
            assert one.tensor.max() <= one.range[1]
    with torch.no_grad():
        output = call(model, inputs)
    if isinstance(output, torch.Tensor):
        torch.testing.assert_close(found[-1].tensor, output)


def test_the_end_changed_in_place():
    """The last d is the output of the softmax, even if it is changed in place later."""
    model = Net(lambda m, x: m.a(x).softmax(1).mul_(0), a=nn.Linear(6, 3))
    last = activations(model, X)[-1]
    assert last.kind == "softmax"
    torch.testing.assert_close(last.tensor, model.a(X).softmax(1).detach())


def test_inputs_of_every_form():
    model = Net(lambda m, x, scale=1.0: m.a(x * scale), a=nn.Linear(6, 3))
    for inputs in (X, (X,), {"x": X}, (X, 1.0), {"x": X, "scale": 1.0}):
        assert torch.equal(activations(model, inputs)[0].tensor, X)


# --- which ones


def test_selection():
    model, x = NETWORKS["reused"]()
    everything = activations(model, x)

    def chosen(layers):
        return [one.name for one in activations(model, x, layers)]

    assert chosen(None) == ["d1", "d2", "d3", "d4", "d5", "d6"] == [one.name for one in everything]
    assert chosen("d3") == ["d3"]
    assert chosen(["d6", "d1"]) == ["d1", "d6"]  # in the order in which they run
    assert chosen("output") == ["d6"]
    assert chosen("step#2") == ["d3"]
    assert chosen("*") == chosen(None)
    assert chosen(("f*", "last")) == ["d1", "d5"]
    assert chosen(["d1", "first"]) == ["d1"]
    assert activations(nn.Linear(6, 3), X, "")[0].name == "d1"


def test_patterns_match_without_suffixes():
    """A module's name matches its later uses and each of its several weights."""
    model, x = NETWORKS["reused"]()
    assert [one.name for one in activations(model, x, "step")] == ["d2", "d3", "d4"]
    model, inputs = NETWORKS["cross_attention"]()
    assert [one.name for one in activations(model, inputs, "attention")] == ["d2", "d3", "d4"]


@pytest.mark.parametrize("layers", ["nope", ["d1", "nope"], "d9", ["d1", "D2"]])
def test_unknown_layers(layers):
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    listed = r"matches no layer.*; the layers are: d1 \(0\), d2 \(2\), d3 \(output\)"
    with pytest.raises(ValueError, match=listed):
        activations(model, X, layers)

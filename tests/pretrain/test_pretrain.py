"""Greedy layer-wise pretraining against the same thing written by hand, and everything that must stay as it was."""

import copy
import io
import os
import random
import signal
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from racecar.pretrain import greedy, training
from racecar.pretrain.store import FORMAT
from racecar.racecar import call_arguments
from racecar.run.forward_pass import ForwardPass
from racecar.watch.eval_mode import eval_mode
from tests.by_hand import Layer, Net, batch_norm, chain, close, lively, rebuild, squares, undo_conv, undo_linear, up
from tests.hf_zoo import HF_MODELS
from tests.losses import classic
from tests.networks import NETWORKS, SOME
from tests.other_process import started

State = dict[str, Tensor]


def rows(count: int = 3, size: int = 5, width: int = 6) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(1)
    return [torch.randn(size, width, generator=drawn, dtype=torch.float64) for _ in range(count)]


def pictures(count: int = 3, channels: int = 1, side: int = 8) -> list[Tensor]:
    drawn = torch.Generator().manual_seed(1)
    return [torch.rand(4, channels, side, side, generator=drawn, dtype=torch.float64) for _ in range(count)]


def seeded(build: Callable[[], Any]) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return build().double()


def mlp() -> nn.Sequential:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 3)))


def deep() -> nn.Sequential:
    """Four layers in float32, with batch norm."""
    torch.manual_seed(3)
    parts: list[nn.Module] = []
    for inputs, outputs in ((6, 8), (8, 7), (7, 5), (5, 3)):
        parts += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.Tanh()]
    return nn.Sequential(*parts)


def state(model: nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def same(one: State, other: State) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def moved(before: State, after: State) -> set[str]:
    return {name for name in before if not torch.equal(before[name], after[name])}


class Watching:
    """A loader that keeps the model's state at the start of every pass through it, and at every batch."""

    def __init__(self, model: nn.Module, batches: Sequence[Any]) -> None:
        self.model, self.batches = model, batches
        self.states: list[State] = []
        self.flags: list[set[str]] = []
        self.training: list[dict[str, bool]] = []

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        self.states.append(state(self.model))
        for batch in self.batches:
            self.flags.append({name for name, one in self.model.named_parameters() if one.requires_grad})
            self.training.append({name: module.training for name, module in self.model.named_modules()})
            yield batch

    def moved(self) -> list[set[str]]:
        """What changed in each pass; the first one is only the look at an example."""
        return [moved(*pair) for pair in pairwise([*self.states[1:], state(self.model)])]


# --- the same by hand ---------------------------------------------------------------------------------------------


def by_hand(
    model: nn.Module,
    layers: Callable[[nn.Module, Tensor], list[Layer]],
    own: Sequence[Sequence[str]],
    batches: Iterable[Tensor],
    epochs: int,
    lr: float,
) -> list[tuple[float, float]]:
    """One layer after the other: encode, decode with the same weight, compare, and step on its parameters alone."""
    means = []
    for index, names in enumerate(own):
        parameters = [model.get_parameter(name) for name in names]
        optimiser, each = torch.optim.Adam(parameters, lr), []
        for _ in range(epochs):
            losses = []
            for x in batches:
                layer = layers(model, x)[index]
                loss = squares(layer.d - layer.back(layer.out)) / squares(layer.d).detach()
                gradients = torch.autograd.grad(loss, parameters)
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter.grad = gradient
                optimiser.step()
                losses.append(float(loss.detach()))
            each.append(sum(losses) / len(losses))
        means.append((each[0], each[-1]))
    return means


def mlp_layers(net: nn.Module, x: Tensor) -> list[Layer]:
    d2 = torch.tanh(F.linear(x, net[0].weight, net[0].bias))
    d3 = torch.tanh(F.linear(d2, net[2].weight, net[2].bias))
    d4 = F.linear(d3, net[4].weight, net[4].bias)
    backs = (
        lambda y: undo_linear(net[0], y),
        lambda y: torch.tanh(undo_linear(net[2], y)),
        lambda y: torch.tanh(undo_linear(net[4], y)),
    )
    return chain(("0", "2", "4"), (x, d2, d3, d4), backs)


def test_mlp_by_hand():
    model, batches = mlp(), rows()
    truth = copy.deepcopy(model)
    own = ("0.weight", "0.bias"), ("2.weight", "2.bias"), ("4.weight",)
    means = by_hand(truth, mlp_layers, own, batches, 4, 1e-2)
    done = greedy(model, batches, epochs=4, lr=1e-2)
    close(state(model), state(truth))
    assert [one.layer for one in done] == ["0", "2", "4"], "from the input up"
    close([(one.first, one.last) for one in done], means)
    assert [one.steps for one in done] == [12] * 3
    assert all(one.seconds > 0 for one in done)


def convs() -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 4, 3, padding=1),
            relu1=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            conv2=nn.Conv2d(4, 6, 3, padding=1),
            relu2=nn.ReLU(),
            flatten=nn.Flatten(),
            head=nn.Linear(6 * 16, 3),
        )
    )


def conv_layers(net: nn.Module, x: Tensor) -> list[Layer]:
    d2 = torch.relu(net.conv1(x))
    d3 = torch.relu(net.conv2(F.max_pool2d(d2, 2)))
    d4 = net.head(d3.flatten(1))
    backs = (
        lambda y: undo_conv(net.conv1, y),
        lambda y: up(torch.relu(undo_conv(net.conv2, y))),
        lambda y: torch.relu(undo_linear(net.head, y)).view_as(d3),
    )
    return chain(("conv1", "conv2", "head"), (x, d2, d3, d4), backs)


def test_convolutions_by_hand():
    model, batches = seeded(convs), pictures()
    truth = copy.deepcopy(model)
    own = ("conv1.weight", "conv1.bias"), ("conv2.weight", "conv2.bias"), ("head.weight",)
    means = by_hand(truth, conv_layers, own, batches, 3, 1e-2)
    done = greedy(model, batches, epochs=3, lr=1e-2)
    close(state(model), state(truth))
    close([(one.first, one.last) for one in done], means)


def normed() -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 4, 3, padding=1),
            bn1=nn.BatchNorm2d(4),
            relu=nn.ReLU(inplace=True),
            drop=nn.Dropout(0.5),
            pool=nn.MaxPool2d(2),
            conv2=nn.Conv2d(4, 5, 3, padding=1, bias=False),
            bn2=nn.BatchNorm2d(5),
            tanh=nn.Tanh(),
        )
    )


def normed_layers(net: nn.Module, x: Tensor) -> list[Layer]:
    """The dropout is off; ``net.bn(…)`` moves the running statistics, the reverse pass does not."""
    d2 = torch.relu(net.bn1(net.conv1(x)))
    d3 = torch.tanh(net.bn2(net.conv2(F.max_pool2d(d2, 2))))
    backs = (
        lambda y: undo_conv(net.conv1, y),
        lambda y: up(torch.relu(batch_norm(net.bn1, undo_conv(net.conv2, y)))),
    )
    return chain(("conv1", "conv2"), (x, d2, d3), backs)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_and_dropout_by_hand(training: bool):
    """Batch statistics, running ones that follow, no dropout, no random number: in whichever mode the model came."""
    model, batches = lively(seeded(normed)), pictures()
    truth = copy.deepcopy(model).train()
    own = ("conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias"), ("conv2.weight", "bn2.weight", "bn2.bias")
    means = by_hand(truth, normed_layers, own, batches, 2, 1e-2)
    random_state = torch.get_rng_state()
    done = greedy(model.train(training), batches, epochs=2, lr=1e-2)
    assert torch.equal(torch.get_rng_state(), random_state)
    close(state(model), state(truth))
    assert int(model.bn1.num_batches_tracked) == 2 * 2 * len(batches)
    close([(one.first, one.last) for one in done], means)


@pytest.mark.parametrize("scale", ["relative", "mean", "sum"])
@pytest.mark.parametrize("fraction", [1.0, 0.4])
def test_scale_and_fraction(scale: str, fraction: float):
    """One step of gradient descent moves the weight by the gradient of that very loss, and by nothing else."""
    model, (x,) = mlp(), rows(1)
    truth = copy.deepcopy(model)
    n = max(1, round(fraction * len(x)))
    layer = mlp_layers(truth, x[:n])[1]
    error = squares(layer.d - layer.back(layer.out))
    by = {"relative": squares(layer.d).detach(), "mean": layer.d.numel(), "sum": n / len(x)}
    weight, bias = torch.autograd.grad(error / by[scale], (truth[2].weight, truth[2].bias))
    options = {"scale": scale, "fraction": fraction, "optimiser": lambda own: torch.optim.SGD(own, lr=0.5)}
    greedy(model, [x], layers="2", **options)
    close(model[2].weight, truth[2].weight - 0.5 * weight)
    close(model[2].bias, truth[2].bias - 0.5 * bias)


def test_residual_block_by_hand():
    """The reverse pass into a branch starts before the join; what follows the join belongs to nobody."""

    def forward(m, x):
        h = torch.tanh(m.a(x))
        return m.head(m.after(torch.tanh(m.c(torch.tanh(m.b(h))) + h)))

    def build():
        parts = {"a": nn.Linear(6, 5), "b": nn.Linear(5, 4), "c": nn.Linear(4, 5), "after": nn.LayerNorm(5)}
        return Net(forward, **parts, head=nn.Linear(5, 3))

    model = seeded(build)

    def layers(m, x):
        d2 = torch.tanh(m.a(x))
        d3 = torch.tanh(m.b(d2))
        branch = m.c(d3)
        joined = m.after(torch.tanh(branch + d2))
        return [
            Layer("a", x, d2, lambda y: undo_linear(m.a, y)),
            Layer("b", d2, d3, lambda y: torch.tanh(undo_linear(m.b, y))),
            Layer("c", d3, branch, lambda y: torch.tanh(undo_linear(m.c, y))),
            Layer("head", joined, m.head(joined), lambda y: m.after(torch.tanh(undo_linear(m.head, y)))),
        ]

    truth, batches = copy.deepcopy(model), rows()
    own = ("a.weight", "a.bias"), ("b.weight", "b.bias"), ("c.weight",), ("head.weight",)
    means = by_hand(truth, layers, own, batches, 2, 1e-2)
    done = greedy(model, batches, epochs=2, lr=1e-2)
    close(state(model), state(truth))
    close([(one.first, one.last) for one in done], means)


def test_prelu_belongs_to_its_layer():
    """A weight between a layer's operation and d_(m+1) is part of the encoder."""
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.PReLU(), nn.Linear(5, 3)))
    watching = Watching(model, rows())
    greedy(model, watching)
    assert watching.moved() == [{"0.weight", "0.bias", "1.weight"}, {"2.weight"}]


# --- one layer at a time, everything else as it was ---------------------------------------------------------------

APART = [name for name in SOME if name not in ("unet_bilinear", "tied_autoencoder")]
"""All parameters have one use, and none takes long."""


@pytest.mark.parametrize("name", [*APART, "weight_norm", "densenet", "keyword_inputs"])
def test_only_the_layer_at_work_changes(name: str):
    model, inputs = NETWORKS[name]()
    flags = {key: one.requires_grad for key, one in model.named_parameters()}
    watching = Watching(model, [inputs] * 2)
    plan = [entry.name for entry in classic(copy.deepcopy(model), inputs, mode="layerwise").plan]
    done = greedy(model, watching, inputs=lambda batch: batch)
    assert [one.layer for one in done] == plan, "every layer of the plan, from the input up"
    parameters = dict(model.named_parameters())
    holders = {key: model.get_submodule(key.rpartition(".")[0]) for key in parameters}
    trained: set[str] = set()
    for one, changed in zip(done, watching.moved(), strict=True):
        changed &= parameters.keys()
        assert not changed & trained, "a layer that is done stays as it is"
        trained |= changed
        weights = {key for key in changed if parameters[key].dim() > 1}
        assert weights
        for key in weights:  # "conv1.weight", "attention.in_proj_weight", "0.parametrizations.weight.original1"
            rest = key.removeprefix(one.layer).removeprefix(".parametrizations.weight").removeprefix(".")
            assert key.startswith(one.layer), f"{key} moved with layer {one.layer}"
            assert "." not in rest, f"{key} moved with layer {one.layer}"
        for key in changed - weights:
            norm = isinstance(holders[key], nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm)
            owned = key.startswith(f"{one.layer}.") or holders[key] is model
            assert norm or owned, f"{key} moved with layer {one.layer}"
    assert flags == {key: one.requires_grad for key, one in model.named_parameters()}
    assert all(one.grad is None for one in model.parameters())


@pytest.mark.parametrize("name", ["mlp_norm", "resnet_pad", "weight_norm"])
def test_gradient_is_asked_for_the_layer_alone(name: str):
    """Frozen for autograd as well: what is not trained costs no gradient."""
    model, inputs = NETWORKS[name]()
    watching = Watching(model, [inputs])
    greedy(model, watching)
    for flags, changed in zip(watching.flags[1:], watching.moved(), strict=True):
        assert changed & dict(model.named_parameters()).keys() <= flags
        assert len(flags) < 7


@pytest.mark.parametrize("name", ["reused", "tied", "tied_autoencoder"])
def test_a_parameter_with_several_uses_is_trained_once(name: str):
    """Trained again by a later use, it would no longer fit the first one: greedy goes from the input up."""
    model, inputs = NETWORKS[name]()
    names = {id(one): key for key, one in model.named_parameters()}
    given: list[str] = []

    def optimiser(own):
        given.extend(names[id(one)] for one in own)
        return torch.optim.Adam(own, 1e-3)

    greedy(model, [inputs] * 2, optimiser=optimiser)
    assert sorted(given) == sorted(set(given))


def test_a_reused_layer_is_one_layer():
    model, inputs = NETWORKS["reused"]()
    assert [one.layer for one in greedy(model, [inputs] * 2)] == ["first", "step", "last"]


@pytest.mark.parametrize("kind", ["transposed", "scaled", "sliced"])
def test_weights_that_are_computed_from_a_parameter(kind: str):
    """All parameters lie in one module, and still every layer is trained, with its own weight alone."""

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(8, 8) / 4), nn.Parameter(torch.randn(8, 8) / 4)

        def forward(self, x):
            turn = {"transposed": lambda w: w.t(), "scaled": lambda w: w * 0.5, "sliced": lambda w: w[:7]}[kind]
            h = torch.tanh(F.linear(x, turn(self.a)))
            return F.linear(F.pad(h, (0, 8 - h.shape[1])), turn(self.b))

    model = seeded(Bare)
    watching = Watching(model, rows(2, width=8))
    done = greedy(model, watching)
    assert [one.layer for one in done] == ["a", "b"]
    assert watching.moved() == [{"a"}, {"b"}]


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrised_weights_learn(kind: str):
    model, inputs = NETWORKS[kind]()
    before = state(model)
    done = greedy(model, [inputs] * 3, epochs=10, lr=1e-2)
    assert all(one.last < one.first for one in done)
    assert {name for name in before if "original" in name} <= moved(before, state(model))
    if kind == "orthogonal":
        weight = model[4].weight
        close(weight @ weight.T, torch.eye(len(weight)), 1e-5)


@pytest.mark.parametrize("name", ["mlp", "vgg_plain", "resnet_pad", "encoder", "text"])
def test_losses_go_down(name: str):
    """As the reports say, and as the reverse loss of the whole model says."""
    model, inputs = NETWORKS[name]()
    args, kwargs = call_arguments(inputs)
    rr = classic(model, inputs, mode="layerwise")
    before = rr(*args, **kwargs)[1].item()
    done = greedy(model, [inputs], epochs=8, lr=3e-3)
    assert all(one.last < one.first for one in done), done
    assert rr(*args, **kwargs)[1].item() < before


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["bert", "vit"])
def test_transformers(name: str):
    model, inputs = HF_MODELS[name]()
    watching = Watching(model, [inputs] * 2)
    done = greedy(model, watching, layers=["*.1.*", "*classifier*"], lr=1e-2)
    assert all(".1." in one.layer or "classifier" in one.layer for one in done)
    assert len(done) > 5
    for one, changed in zip(done, watching.moved(), strict=True):
        assert f"{one.layer}.weight" in changed
        assert all(name.startswith(one.layer) or "layernorm" in name.lower() for name in changed), changed


def test_the_mode_of_every_module_comes_back():
    class Stubborn(nn.Sequential):
        """Its norm is kept in evaluation mode, whatever is asked."""

        def train(self, mode: bool = True):
            super().train(mode)
            self[1].training = False
            return self

    model = seeded(lambda: Stubborn(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(), nn.Linear(8, 3)))
    model.train()
    model[3].training = True
    model[4].training = False
    before = {name: module.training for name, module in model.named_modules()}
    watching = Watching(model, rows())
    greedy(model, watching)
    assert {name: module.training for name, module in model.named_modules()} == before
    during = watching.training[-1]
    assert during == {"": False, "0": False, "1": True, "2": False, "3": False, "4": False}


class Stop(Exception):
    pass


def stop() -> None:
    raise Stop


class Interrupted:
    """A loader that stops in batch ``after``, counted from 0 over all passes through it."""

    def __init__(self, loader: Iterable[Any], after: int, fail: Callable[[], Any] = stop) -> None:
        self.loader, self.left, self.fail = loader, after, fail

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        return self.through(iter(self.loader))  # at once, as without us: a DataLoader draws a random number here

    def through(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if not self.left:
                self.fail()
            self.left -= 1
            yield batch


@pytest.mark.parametrize("fails", [True, False])
def test_flags_and_gradients_come_back(fails: bool):
    """Also after an error; gradients that a user has gathered are not ours to drop."""
    model = mlp()
    model[2].weight.requires_grad_(False)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[4].bias.grad = torch.full_like(model[4].bias, 2)
    flags = [one.requires_grad for one in model.parameters()]
    gradients = [None if one.grad is None else one.grad.clone() for one in model.parameters()]
    modes = [module.training for module in model.modules()]
    if fails:
        with pytest.raises(Stop):
            greedy(model, Interrupted(rows(), 5))
    else:
        greedy(model, rows())
    assert [one.requires_grad for one in model.parameters()] == flags
    assert [module.training for module in model.modules()] == modes
    for one, gradient in zip(model.parameters(), gradients, strict=True):
        assert (one.grad is None) == (gradient is None)
        assert gradient is None or torch.equal(one.grad, gradient)


def test_the_optimiser_is_the_user_s():
    model, calls = mlp(), []

    def optimiser(own):
        calls.append([tuple(one.shape) for one in own])
        assert all(isinstance(one, nn.Parameter) and one.requires_grad for one in own)
        return torch.optim.SGD(own, lr=0.0)

    before = state(model)
    greedy(model, rows(), optimiser=optimiser)
    assert [sorted(one) for one in calls] == [[(8,), (8, 6)], [(5,), (5, 8)], [(3,), (3, 5)]]
    assert same(before, state(model)), "at a learning rate of 0"


def test_a_model_that_is_one_layer():
    model = seeded(lambda: nn.Linear(6, 4))
    (one,) = greedy(model, rows(), epochs=20, lr=1e-2)
    assert one.layer == ""
    assert one.last < one.first


@pytest.mark.parametrize("names", [("a[0]", "b[1]"), ("*", "a"), ("?", "a"), ("[!x]", "a")])
def test_names_that_look_like_patterns(names: tuple[str, str]):
    def build():
        parts = [(names[0], nn.Linear(6, 8)), ("t", nn.Tanh()), (names[1], nn.Linear(8, 3))]
        return nn.Sequential(OrderedDict(parts))

    model = seeded(build)
    watching = Watching(model, rows())
    truth = copy.deepcopy(nn.Sequential(*model))
    done = greedy(model, watching)
    assert [one.layer for one in done] == list(names)
    greedy(truth, rows())
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), truth.parameters(), strict=True))


def test_inside_no_grad():
    """Training is what is asked for, wherever it is asked."""
    model, truth = mlp(), mlp()
    greedy(truth, rows())
    with torch.no_grad():
        greedy(model, rows())
    assert same(state(model), state(truth))


# --- which layers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "patterns, layers",
    [
        (None, ["features.0", "features.3", "features.7", "features.10", "classifier"]),
        ("features.*", ["features.0", "features.3", "features.7", "features.10"]),
        (["classifier", "features.0"], ["features.0", "classifier"]),
        (("*.[37]",), ["features.3", "features.7"]),
        ("*", ["features.0", "features.3", "features.7", "features.10", "classifier"]),
    ],
)
def test_layers_by_pattern(patterns: Any, layers: list[str]):
    model, inputs = NETWORKS["vgg"]()
    watching = Watching(model, [inputs])
    assert [one.layer for one in greedy(model, watching, layers=patterns)] == layers
    for name, changed in zip(layers, watching.moved(), strict=True):
        assert {key.rpartition(".")[0] for key in changed if changed and key.endswith(".weight")} >= {name}


@pytest.mark.parametrize("patterns", ["nothing*", ["nothing", "else"], [], "1", ["0", "misspelt"]])
def test_a_pattern_that_matches_nothing_is_refused(patterns: Any):
    """Each of them, as for the weight of a Racecar: a misspelt one would go unnoticed."""
    model = mlp()
    before = state(model)
    with pytest.raises(ValueError, match="'0', '2', '4'") as caught:
        greedy(model, rows(), layers=patterns)
    assert "\n" not in str(caught.value)
    assert same(before, state(model))


# --- batches ------------------------------------------------------------------------------------------------------

FORMS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Any] | None]] = {
    "tuple": (lambda x: (x, "label"), None),
    "list": (lambda x: [x, torch.zeros(5)], None),
    "only": (lambda x: (x,), None),
    "dict": (lambda x: {"input": x}, None),
    "inputs": (lambda x: ("label", {"deep": x}), lambda batch: batch[1]["deep"]),
    "inputs_tuple": (lambda x: {"x": x}, lambda batch: (batch["x"],)),
    "inputs_dict": (lambda x: x, lambda batch: {"input": batch}),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_batches(form: str):
    wrap, inputs = FORMS[form]
    model, truth = mlp(), mlp()
    greedy(truth, rows())
    greedy(model, [wrap(x) for x in rows()], inputs=inputs)
    assert same(state(model), state(truth))


def test_keyword_arguments_and_more_than_one():
    model, inputs = NETWORKS["keyword_inputs"]()
    assert [one.layer for one in greedy(model, [inputs, {"x": inputs["x"]}])] == ["first", "last"]
    model, inputs = NETWORKS["two_inputs"]()
    done = greedy(model, [(inputs, "label")] * 2)
    assert [one.layer for one in done] == ["image", "table", "head"]


def test_batches_of_any_size():
    """The last one of an epoch is often smaller."""
    model = mlp()
    x = torch.cat(rows())
    done = greedy(model, DataLoader(TensorDataset(x), batch_size=4))
    assert [one.steps for one in done] == [4] * 3


def test_batches_that_take_other_ways_through_the_model():
    """A layer that a batch does not pass learns nothing from it; all others learn."""
    model, x = NETWORKS["branching"]()
    before = state(model)
    left, right = x.abs(), -x.abs()
    done = greedy(model, [left, right], epochs=2)
    assert {"first", "left", "last"} <= {one.layer for one in done}
    assert {"first.weight", "left.weight", "last.weight"} <= moved(before, state(model))


def test_an_empty_loader_is_refused():
    with pytest.raises(ValueError, match="no batch"):
        greedy(mlp(), [])


class Once:
    """An iterable that is empty from the second pass on."""

    def __init__(self, batches: list[Tensor], passes: int) -> None:
        self.batches, self.passes = batches, passes

    def __iter__(self) -> Iterator[Tensor]:
        self.passes -= 1
        return iter(self.batches if self.passes >= 0 else [])


@pytest.mark.parametrize("loader", [lambda: iter(rows()), lambda: (x for x in rows()), lambda: Once(rows(), 3)])
def test_a_loader_that_runs_dry_is_refused(loader: Callable[[], Iterable[Tensor]]):
    model = mlp()
    flags = [one.requires_grad for one in model.parameters()]
    with pytest.raises(ValueError, match="again") as caught:
        greedy(model, loader())
    assert "\n" not in str(caught.value)
    assert [one.requires_grad for one in model.parameters()] == flags


def test_a_generator_never_loses_a_batch():
    """One layer and one epoch need it only once, but the look at an example must not eat the first batch."""
    model = seeded(lambda: nn.Linear(6, 4))
    try:
        (one,) = greedy(model, (x for x in rows()))
    except ValueError:
        return
    assert one.steps == 3


@pytest.mark.parametrize(
    "change, error",
    [
        ({"epochs": 0}, "epochs"),
        ({"epochs": -1}, "epochs"),
        ({"epochs": 1.5}, "epochs"),
        ({"scale": "other"}, "scale"),
        ({"fraction": 0.0}, "fraction"),
        ({"fraction": 1.5}, "fraction"),
        ({"lr": -1.0}, "learning rate|lr"),
    ],
)
def test_bad_settings(change: dict[str, Any], error: str):
    model = mlp()
    before = state(model)
    with pytest.raises((ValueError, TypeError), match=error) as caught:
        greedy(model, rows(), **change)
    assert "\n" not in str(caught.value)
    assert same(before, state(model))


@pytest.mark.parametrize("batch", [[], "text", 3])
def test_bad_batches(batch: Any):
    with pytest.raises((ValueError, TypeError)) as caught:
        greedy(mlp(), [batch])
    assert "\n" not in str(caught.value)


def test_a_model_that_is_none():
    with pytest.raises(TypeError, match="nn.Module"):
        greedy(mlp().forward, rows())  # type: ignore[arg-type]


# --- divergence ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimiser", ["Adam", "SGD"])
def test_divergence_is_an_error(tmp_path: Path, optimiser: str):
    path = tmp_path / "state"
    given = None if optimiser == "Adam" else lambda own: torch.optim.SGD(own, lr=1e6)
    with pytest.raises(FloatingPointError) as caught:
        greedy(deep(), [x.float() for x in rows(30)], epochs=2, lr=1e6, optimiser=given, checkpoint=path)
    message = str(caught.value)
    assert "\n" not in message
    assert "'0'" in message
    assert "lr" in message
    assert not list(tmp_path.iterdir()), "nothing to go on from"


def test_a_loss_that_is_not_finite_is_found_wherever_it_comes():
    """The loss is looked at now and then; no step is left out in the end."""
    for bad in (0, 1, 19, 20, 21, 43, 44):
        batches = rows(45)
        batches[bad] = batches[bad] * float("nan")
        with pytest.raises(FloatingPointError, match="'0'"):
            greedy(mlp(), batches, layers="0")


# --- going on after a stop ----------------------------------------------------------------------------------------


def shuffled(**options: Any) -> DataLoader:
    data = torch.randn(20, 6, generator=torch.Generator().manual_seed(5))
    return DataLoader(TensorDataset(data, torch.arange(20)), batch_size=6, shuffle=True, **options)


SETTINGS = {"epochs": 2, "lr": 1e-2}


def trained(loader: Iterable[Any], path: Path | None = None) -> tuple[State, list[tuple[Any, ...]], Tensor]:
    """Weights, report and the next random number of a run from the usual start."""
    model = deep()
    torch.manual_seed(7)
    done = greedy(model, loader, checkpoint=path, **SETTINGS)
    return state(model), [(one.layer, one.first, one.last, one.steps) for one in done], torch.rand(3)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# Four batches in an epoch, eight for a layer, and one for the look at an example.
SECOND_LAYER = 1 + 8 + 3


@pytest.mark.parametrize("after", [1 + 2, 1 + 8, SECOND_LAYER, 1 + 16 + 5, 1 + 31])
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, after: int):
    truth = trained(shuffled())
    path = tmp_path / "state"
    with pytest.raises(Stop):
        trained(Interrupted(shuffled(), after), path)
    assert [one.name for one in tmp_path.iterdir()] == (["state"] if after > 8 else [])
    weights, report, number = trained(shuffled(), path)
    assert same(weights, truth[0])
    assert report == truth[1]
    assert torch.equal(number, truth[2])
    assert [one.name for one in tmp_path.iterdir()] == ["state"]


def killed(path: Path) -> None:
    torch.set_num_threads(1)
    trained(Interrupted(shuffled(), SECOND_LAYER, kill), path)


def test_a_killed_process_goes_on_as_if_nothing_had_happened(tmp_path: Path):
    path = tmp_path / "state"
    process = started(killed, path)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert [one["layer"] for one in torch.load(path, weights_only=True)["done"]] == ["0"]
    assert same(trained(shuffled(), path)[0], trained(shuffled())[0])


def test_a_loader_with_random_numbers_of_its_own(tmp_path: Path):
    """`generator=` is the usual way to make a loader's order repeatable."""

    def loader() -> DataLoader:
        return shuffled(generator=torch.Generator().manual_seed(11))

    with pytest.raises(Stop):
        trained(Interrupted(loader(), SECOND_LAYER), tmp_path / "state")
    assert same(trained(loader(), tmp_path / "state")[0], trained(loader())[0])


def test_random_numbers_of_python(tmp_path: Path):
    """Augmentations often draw from `random`."""

    class Noisy:
        def __iter__(self) -> Iterator[Tensor]:
            for x in rows(4):
                yield x.float() * random.uniform(0.5, 1.5)

    def run(loader: Iterable[Any], path: Path | None) -> State:
        random.seed(2)
        return trained(loader, path)[0]

    with pytest.raises(Stop):
        run(Interrupted(Noisy(), SECOND_LAYER), tmp_path / "state")
    assert same(run(Noisy(), tmp_path / "state"), run(Noisy(), None))


def test_a_finished_run_is_not_run_again(tmp_path: Path):
    path = tmp_path / "deep" / "state"
    truth = trained(shuffled(), path)
    content = path.read_bytes()
    weights, report, number = trained(Interrupted(shuffled(), 1), path)  # it may look at an example, no more
    assert same(weights, truth[0])
    assert report == truth[1]
    assert torch.equal(number, truth[2])
    assert path.read_bytes() == content


def test_the_checkpoint_changes_nothing(tmp_path: Path):
    with_file, without = trained(shuffled(), tmp_path / "state"), trained(shuffled())
    assert same(with_file[0], without[0])
    assert with_file[1] == without[1]


def test_a_stop_while_the_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, save, saves = tmp_path / "state", torch.save, []

    def half(held, file):
        saves.append(held)
        buffer = io.BytesIO()
        save(held, buffer)
        file.write(buffer.getvalue()[: 1000 if len(saves) == 2 else None])
        if len(saves) == 2:
            raise Stop

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(Stop):
        trained(shuffled(), path)
    monkeypatch.undo()
    assert [one.name for one in tmp_path.iterdir()] == ["state"]
    assert [one["layer"] for one in torch.load(path, weights_only=True)["done"]] == ["0"]
    assert same(trained(shuffled(), path)[0], trained(shuffled())[0])


def test_more_layers_later(tmp_path: Path):
    """What is in the file is kept, what is not is trained."""
    model, truth, path = mlp(), mlp(), tmp_path / "state"
    greedy(model, rows(), layers="0", checkpoint=path)
    done = greedy(model, rows(), checkpoint=path)
    greedy(truth, rows())
    assert [one.layer for one in done] == ["0", "2", "4"]
    assert same(state(model), state(truth))


def test_fewer_layers_later(tmp_path: Path):
    """Layers that are not asked for are neither changed nor reported; or the file is refused."""
    path = tmp_path / "state"
    greedy(mlp(), rows(), checkpoint=path)
    model = mlp()
    before = state(model)
    try:
        done = greedy(model, rows(), layers="0", checkpoint=path)
    except ValueError:
        assert same(before, state(model))
    else:
        assert [one.layer for one in done] == ["0"]
        assert moved(before, state(model)) == {"0.weight", "0.bias"}


# --- files that are no checkpoint of this run ---------------------------------------------------------------------


def saved(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def held(tmp_path: Path, **options: Any) -> dict[str, Any]:
    greedy(mlp(), rows(), checkpoint=tmp_path / "good", **options)
    return torch.load(tmp_path / "good", weights_only=True)


def without(content: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: one for name, one in content.items() if name != key}


FOREIGN: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "text": lambda held: b"hello",
    "empty": lambda held: b"",
    "half": lambda held: saved(held)[: len(saved(held)) // 2],
    "without its end": lambda held: saved(held)[:-50],
    "weights alone": lambda held: saved(held["model"]),
    "a tensor": lambda held: saved(torch.zeros(3)),
    "another format": lambda held: saved({**held, "format": 999}),
    "no format": lambda held: saved(without(held, "format")),
    "no settings": lambda held: saved(without(held, "settings")),
    "no model": lambda held: saved(without(held, "model")),
    "no random state": lambda held: saved(without(held, "random")),
    "a wrong random state": lambda held: saved({**held, "random": torch.zeros(3)}),
    "other reports": lambda held: saved({**held, "done": [{"layer": "0"}]}),
    "another model": lambda held: saved({**held, "model": state(deep())}),
    "a wider model": lambda held: saved({**held, "model": {**held["model"], "2.weight": torch.zeros(7, 8)}}),
    "a longer model": lambda held: saved({**held, "model": {**held["model"], "6.weight": torch.zeros(3, 3)}}),
    "a layer that is not there": lambda held: saved({**held, "done": [{**held["done"][0], "layer": "nowhere"}]}),
}


def refused(path: Path, content: bytes, **options: Any) -> str:
    """The one line that a file is refused with; the file, the model and the random state stay as they are."""
    path.write_bytes(content)
    model = mlp()
    before, random_state, files = state(model), torch.get_rng_state(), sorted(path.parent.iterdir())
    with pytest.raises(ValueError, match=r"^[^\n]+\Z") as caught:
        greedy(model, rows(), checkpoint=path, **options)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content
    assert sorted(path.parent.iterdir()) == files
    assert same(before, state(model))
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(one.requires_grad for one in model.parameters())
    return str(caught.value)


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, kind: str):
    refused(tmp_path / "state", FOREIGN[kind](held(tmp_path)))


@pytest.mark.parametrize("change", [{"epochs": 2}, {"lr": 1e-2}, {"scale": "sum"}, {"fraction": 0.5}])
def test_other_settings_are_refused(tmp_path: Path, change: dict[str, Any]):
    (name,) = change
    assert name in refused(tmp_path / "state", saved(held(tmp_path)), **change)


def test_a_folder_is_no_checkpoint(tmp_path: Path):
    (tmp_path / "state").mkdir()
    with pytest.raises((ValueError, OSError)):
        greedy(mlp(), rows(), checkpoint=tmp_path / "state")
    assert not list((tmp_path / "state").iterdir())


def test_no_code_is_run_from_a_checkpoint(tmp_path: Path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    (tmp_path / "state").write_bytes(saved({"format": FORMAT, "settings": Evil()}))
    with pytest.raises(ValueError, match="no pretraining checkpoint"):
        greedy(mlp(), rows(), checkpoint=tmp_path / "state")
    assert not (tmp_path / "evil").exists()


# --- progress -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [1, 19, 20, 21, 47])
def test_the_bar_counts_every_step(monkeypatch: pytest.MonkeyPatch, batches: int):
    bars: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def bar(title, total, show=None):
        bars.append((title, total, []))
        yield lambda steps, note: bars[-1][2].append(steps)

    monkeypatch.setattr(training, "bar", bar)
    done = greedy(mlp(), rows(batches), epochs=2)
    for (title, total, steps), one in zip(bars, done, strict=True):
        assert one.layer in title
        assert total == one.steps == 2 * batches
        assert sum(steps) == total, "the bar ends at 100 %"


def test_the_bar_shows_if_asked(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    greedy(mlp(), Once(rows(), 99), progress=True)  # its length is not known
    out, err = capsys.readouterr()
    assert out == ""
    assert all(f"pretraining {name} ({i} of 3)" in err for i, name in enumerate("024", 1))
    greedy(mlp(), rows())
    greedy(mlp(), rows(), progress=False)
    assert capsys.readouterr() == ("", "")


# --- a model held still, and one pass kept whole ------------------------------------------------------------------


@pytest.mark.parametrize("statistics, norm", [("running", False), ("batch", True)])
def test_looking(statistics: str, norm: bool):
    model = seeded(normed).train()
    model.conv1.training = False
    before = [module.training for module in model.modules()]
    with pytest.raises(Stop), eval_mode(model, statistics):  # noqa: PT012
        training = {name for name, module in model.named_modules() if module.training}
        raise Stop
    assert training == ({"bn1", "bn2"} if norm else set())
    assert [module.training for module in model.modules()] == before


def test_looking_asks_for_known_statistics():
    model = seeded(normed).train()
    with pytest.raises(ValueError, match="batch, running, not 'mean'"), eval_mode(model, "mean"):
        pass
    assert model.training


def test_passage_by_hand():
    """d_m, d_(m+1), the whole reverse pass, the layer-wise one and the one from a layer in the middle."""
    net, (x,) = mlp(), rows(1)
    layers = mlp_layers(net, x)
    forward = ForwardPass(net, (x,))
    assert [layer.name for layer in forward.layers] == ["0", "2", "4"]
    close(forward.output, layers[-1].out.detach())
    for ours, theirs in zip(forward.layers, layers, strict=True):
        close(forward.value(ours.d), theirs.d.detach())
        close(forward.value(ours.out), theirs.out.detach())
    for mode, layerwise in (("full", False), ("layerwise", True)):
        rebuilt = forward.rebuild(forward.plan(mode))
        truth = rebuild(layers, layerwise)
        assert list(rebuilt) in ([0, 1, 2], [2, 1, 0])
        for layer in forward.layers:
            close(rebuilt[layer.index], truth[layer.name].detach())
            assert not rebuilt[layer.index].requires_grad
    middle = forward.rebuild(forward.plan("input", forward.layers[1]), torch.sin)
    close(middle[0], torch.sin(layers[0].back(layers[1].back(layers[1].out))).detach())


def test_passage_keeps_what_is_changed_in_place():
    """`out += identity` comes after the norm whose output is the layer's d_(m+1)."""
    model, x = NETWORKS["resnet"]()
    truth: dict[str, Tensor] = {}

    def keep(module, args, output):
        truth[f"blocks.{len(truth)}.conv2"] = output.clone()

    watched = copy.deepcopy(model)
    for block in watched.blocks:
        block.bn2.register_forward_hook(keep)
    with torch.no_grad():
        watched(x)
    forward = ForwardPass(model, (x,))
    found = {layer.name: forward.value(layer.out) for layer in forward.layers}
    for name, tensor in truth.items():
        torch.testing.assert_close(found[name], tensor)


@pytest.mark.parametrize("training", [True, False])
def test_passage_leaves_no_trace(training: bool):
    model, (x,) = seeded(normed).train(training), pictures(1)
    before, random_state, seen = state(model), torch.get_rng_state(), x.clone()
    forward = ForwardPass(model, (x,), {})
    forward.rebuild(forward.plan("full"))
    assert same(before, state(model))
    assert torch.equal(torch.get_rng_state(), random_state)
    assert torch.equal(x, seen)
    assert model.training == training
    assert all(one.requires_grad and one.grad is None for one in model.parameters())
    assert not forward.output.requires_grad


def test_passage_takes_keyword_arguments():
    model, inputs = NETWORKS["keyword_inputs"]()
    close(ForwardPass(model, (), inputs).output, model(**inputs).detach())


@pytest.mark.parametrize("model", [None, "text", F.relu])
def test_passage_of_no_model(model: Any):
    with pytest.raises(TypeError, match="nn.Module"):
        ForwardPass(model, rows(1))

"""One layer is trained at a time, and everything else stays as it was; divergence is an error, progress a bar."""

import copy
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from racecar.pretrain import greedy, training
from tests.by_hand import close
from tests.hf_zoo import HF_MODELS
from tests.losses import classic
from tests.networks import NETWORKS
from tests.pretrain.common import Interrupted, Stop, Watching, deep, mlp, moved, rows, same, seeded, state

# --- one layer at a time, everything else as it was ---------------------------------------------------------------


APART = ["vgg", "mlp_norm", "functional", "bare_weights", "attention", "text", "weight_norm", "keyword_inputs"]
"""All parameters have one use."""


@pytest.mark.parametrize("name", APART)
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
    """All other parameters are frozen meanwhile, so that they cost no gradient."""
    model, inputs = NETWORKS[name]()
    watching = Watching(model, [inputs])
    greedy(model, watching)
    for flags, changed in zip(watching.flags[1:], watching.moved(), strict=True):
        assert changed & dict(model.named_parameters()).keys() <= flags
        assert len(flags) < 7


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrised_weights_learn(kind: str):
    model, inputs = NETWORKS[kind]()
    before = state(model)
    done = greedy(model, [inputs] * 3, epochs=4, lr=1e-2)
    assert all(one.last < one.first for one in done)
    assert {name for name in before if "original" in name} <= moved(before, state(model))
    if kind == "orthogonal":
        weight = model[4].weight
        close(weight @ weight.T, torch.eye(len(weight)), 1e-5)


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


@pytest.mark.parametrize("fails", [True, False])
def test_flags_and_gradients_come_back(fails: bool):
    """Also after an error; gradients that the user has accumulated are kept."""
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


def test_inside_no_grad():
    """The layers are trained even if the caller is inside no_grad."""
    model, truth = mlp(), mlp()
    greedy(truth, rows())
    with torch.no_grad():
        greedy(model, rows())
    assert same(state(model), state(truth))


# --- settings -----------------------------------------------------------------------------------------------------


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
    for bad in (0, 20, 44):
        batches = rows(45)
        batches[bad] = batches[bad] * float("nan")
        with pytest.raises(FloatingPointError, match="'0'"):
            greedy(mlp(), batches, layers="0")


# --- progress -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [1, 20, 21])
def test_the_bar_counts_every_step(monkeypatch: pytest.MonkeyPatch, batches: int):
    bars: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def bar(title, total, show=None):
        bars.append((title, total, []))
        yield lambda steps, note: bars[-1][2].append(steps)

    monkeypatch.setattr(training, "bar", bar)
    done = greedy(mlp(), rows(batches), epochs=2, layers=["0", "4"])
    assert len(done) == 2
    for (title, total, steps), one in zip(bars, done, strict=True):
        assert one.layer in title
        assert total == one.steps == 2 * batches
        assert sum(steps) == total, "the bar ends at 100 %"

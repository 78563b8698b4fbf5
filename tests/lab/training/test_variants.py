"""The variants: each regulariser against NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from racecar.inspect.style import look
from racecar_lab.config import Config
from racecar_lab.experiments import EXPERIMENTS, experiment
from racecar_lab.networks.dense import dense
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.record_writer import Maker
from racecar_lab.running.results import Store
from racecar_lab.running.work import do
from racecar_lab.task import Split, Task
from racecar_lab.training.objective import Objective, Orthogonal, Reverse
from racecar_lab.training.recipe import Recipe
from racecar_lab.training.spec import Training, TrainingOptions
from racecar_lab.training.variants import IN_LOSS, VARIANTS, variant

REVERSE = {"scale": "relative", "gradient": "both", "reduction": "sum"}


def small(seed=0, **more):
    torch.manual_seed(seed)
    model = dense((6, 5, 4, 3), nn.Tanh, **more).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.6)
    return model


def reverse_pass(model, x, mode):
    """Pairs (d_m, d'_m) of a dense net with tanh, by the paper's formulas."""
    layers = [m for m in model if isinstance(m, nn.Linear)]
    weights = [(m.weight.detach().numpy(), m.bias.detach().numpy()) for m in layers]
    d = [x.numpy()]
    for i, (w, b) in enumerate(weights):
        d.append(d[-1] @ w.T + b)
        if i < len(weights) - 1:
            d[-1] = np.tanh(d[-1])
    pairs, back = [], d[-1]
    for m in reversed(range(len(weights))):
        w, b = weights[m]
        back = ((d[m + 1] if mode == "layerwise" else back) - b) @ w
        if m:
            back = np.tanh(back)
        pairs.append((d[m], back))
    return pairs[-1:] if mode == "input" else pairs


def by_hand(model, x, mode, scale):
    errors = [((d - back) ** 2, d) for d, back in reverse_pass(model, x, mode)]
    of = {
        "relative": lambda error, d: error.sum() / (d**2).sum(),
        "sum": lambda error, d: error.sum(),
        "mean": lambda error, d: error.mean(),
    }
    return sum(of[scale](error, d) for error, d in errors)


@pytest.mark.parametrize("scale", ["relative", "sum", "mean"])
@pytest.mark.parametrize("mode", ["full", "layerwise", "input"])
def test_reverse_losses(mode, scale):
    model = small()
    x = torch.randn(7, 6, dtype=torch.float64)
    module = Reverse(model, x, mode=mode, **{**REVERSE, "scale": scale})
    output, loss = module(x)
    assert output.equal(model(x))
    assert float(loss.detach()) == pytest.approx(by_hand(model, x, mode, scale), rel=1e-10)
    assert module.noise == 0
    assert len(module.terms) == (1 if mode == "input" else 3)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("power", [1, 3])
@pytest.mark.parametrize("squared", [False, True])
def test_orthogonality(power, squared):
    """SRIP by power iteration from the random numbers that are passed in, summed over the layers."""
    model, options = small(), {"power": power, "squared": squared}
    x = torch.randn(7, 6, dtype=torch.float64)
    module = Orthogonal(model, **options)
    assert module.noise == 5 + 4 + 3  # the smaller side of every layer
    noise = torch.randn(module.noise, dtype=torch.float64)
    output, loss = module(x, noise=noise)
    assert output.equal(model(x))
    remaining, total = noise.numpy(), 0.0
    for layer in (m for m in model if isinstance(m, nn.Linear)):
        w = layer.weight.detach().numpy()
        residual = w @ w.T - np.eye(len(w))
        v, remaining = remaining[: len(w)], remaining[len(w) :]
        for _ in range(power):
            v = residual @ (v / np.linalg.norm(v))
        total += np.linalg.norm(v) ** (2 if squared else 1)
    assert float(loss.detach()) == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("name", VARIANTS)
def test_objective(name):
    """The loss of the output and the regulariser, of a network whose parameters are in there once."""
    model, split = small(), Split(torch.randn(7, 6, dtype=torch.float64), torch.arange(7) % 3)
    recipe = Recipe()
    training = Training(model, Task(split, split), Config(), recipe, variant=VARIANTS[name], reverse=REVERSE)
    objective = Objective(training, *recipe.all_turns())
    noise = torch.ones(objective.regularised.noise, dtype=torch.float64)
    loss, regulariser = objective(split.x, split.y, noise)
    assert loss.equal(nn.functional.cross_entropy(model(split.x), split.y))
    assert bool(regulariser > 0) is (VARIANTS[name].kind in IN_LOSS)
    layers = {"RR": {"1", "3", "5"}, "lRR": {"1", "3", "5"}, "RR1": {"1"}, "Lin": {"1", "3", "5"}}
    assert objective.regularised.terms.keys() == layers.get(name, set())
    assert all(a is b for a, b in zip(objective.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_fields_of_a_variant(name):
    fields = variant(name)
    assert fields.name == name
    assert fields.title
    assert bool(fields.mode) is (fields.kind == "reverse")
    assert bool(fields.meaning) is (name != "Std")
    joins = variant(name, joins=True)
    assert joins is fields if name != "RR" else (joins.name, joins.kind, joins.mode) == ("RR", "reverse", "auto")


def test_the_gradient_of_mode_linear_has_another_name():
    """What other modes call "reverse" is there "weights"; one that a user chose stays."""
    usual = {"gradient": "reverse", "scale": "mean"}
    assert variant("Lin").arguments(usual) == {"gradient": "weights", "scale": "mean", "mode": "linear"}
    assert variant("Lin").arguments({"gradient": "both"})["gradient"] == "both"
    assert variant("RR").arguments(usual) == {**usual, "mode": "full"}


def test_figures_show_every_variant_in_its_own_style():
    looks = [look(name) for name in VARIANTS]
    for field in ("color", "marker"):
        assert len({style[field] for style in looks}) == len(VARIANTS)


def test_unknown():
    with pytest.raises(ValueError, match="no variant 'std'; the variants are: Std, Ort"):
        variant("std")


@pytest.mark.parametrize("name", [name for name, one in EXPERIMENTS.items() if not one.engine])
def test_every_experiment_has_a_weight_for_every_variant(name):
    one = experiment(name)
    found = {which: one.weight(one.Config(), which) for which in VARIANTS if VARIANTS[which].meaning}
    assert not {which: value for which, value in found.items() if not value > 0}
    assert found["Pre"] == round(found["Pre"])  # epochs
    assert found["Drop"] < 1


@pytest.mark.parametrize("name, config", [("digits", {"shipped": True}), ("peaks", {"nets": ("linear",)})])
def test_dropout_where_there_is_no_place_for_it(name, config, tmp_path):
    """It is refused: plain training under another name would be no control."""
    one = experiment(name)
    (job,) = make_jobs(one, one.Config(epochs=1, **config), ["Drop"], [0], None)
    with pytest.raises(ValueError, match="dropout"):
        do(job, Store(tmp_path), TrainingOptions(), Maker("test", "here"))

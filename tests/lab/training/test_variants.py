"""The variants: each regulariser against NumPy, and the controls against plain training."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from racecar.inspect.style import look
from racecar_lab.experiment import Split
from racecar_lab.experiments import EXPERIMENTS, experiment
from racecar_lab.networks.dense import dense, glorot
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.record_writer import Maker
from racecar_lab.running.results import Store
from racecar_lab.running.starting import begin
from racecar_lab.running.work import do
from racecar_lab.training.spec import TrainingOptions
from racecar_lab.training.variants import VARIANTS, regularise, variant

REVERSE = {"scale": "relative", "gradient": "both", "reduction": "sum"}
INFORMATION = experiment("information")


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
@pytest.mark.parametrize("name, mode", [("RR", "full"), ("lRR", "layerwise"), ("RR1", "input")])
def test_reverse_losses(name, mode, scale):
    model = small()
    x = torch.randn(7, 6, dtype=torch.float64)
    module = regularise(model, variant(name), x, {**REVERSE, "scale": scale}, {})
    output, loss = module(x)
    assert output.equal(model(x))
    assert float(loss.detach()) == pytest.approx(by_hand(model, x, mode, scale), rel=1e-10)
    assert module.noise == 0
    assert len(module.terms) == (1 if mode == "input" else 3)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_three_different_losses():
    x = torch.randn(7, 6, dtype=torch.float64)
    found = {float(regularise(small(), variant(name), x, REVERSE, {})(x)[1].detach()) for name in ("RR", "lRR", "RR1")}
    assert len(found) == 3


@pytest.mark.parametrize("power", [1, 3])
@pytest.mark.parametrize("squared", [False, True])
def test_orthogonality(power, squared):
    """SRIP by power iteration from the random numbers that are passed in, summed over the layers."""
    model, options = small(), {"power": power, "squared": squared}
    x = torch.randn(7, 6, dtype=torch.float64)
    module = regularise(model, variant("Ort"), x, {}, options)
    assert module.noise == 5 + 4 + 3  # the smaller side of every layer
    noise = torch.randn(module.noise, dtype=torch.float64)
    output, loss = module(x, noise=noise)
    assert output.equal(model(x))
    given, total = noise.numpy(), 0.0
    for layer in (m for m in model if isinstance(m, nn.Linear)):
        w = layer.weight.detach().numpy()
        residual = w @ w.T - np.eye(len(w))
        v, given = given[: len(w)], given[len(w) :]
        for _ in range(power):
            v = residual @ (v / np.linalg.norm(v))
        total += np.linalg.norm(v) ** (2 if squared else 1)
    assert float(loss.detach()) == pytest.approx(total, rel=1e-10)


def test_orthogonality_draws_its_own_numbers_if_none_are_given():
    model, x = small(), torch.randn(7, 6, dtype=torch.float64)
    module = regularise(model, variant("Ort"), x, {}, {"power": 200})
    weights = [m.weight.detach().numpy() for m in model if isinstance(m, nn.Linear)]
    sigmas = [np.linalg.norm(w @ w.T - np.eye(len(w)), 2) for w in weights]
    assert float(module(x)[1].detach()) == pytest.approx(sum(sigmas), rel=1e-6)


@pytest.mark.parametrize("name", ["Std", "Pre", "WD", "Drop"])
def test_no_term_in_the_loss(name):
    model, x = small(), torch.randn(7, 6, dtype=torch.float64)
    module = regularise(model, variant(name), x, REVERSE, {})
    output, loss = module(x)
    assert output.equal(model(x))
    assert float(loss) == 0
    assert module.noise == 0
    assert module.terms == {}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_model_is_in_there_once(name):
    """Engines replace its parameters by name."""
    model, x = small(), torch.randn(7, 6, dtype=torch.float64)
    module = regularise(model, variant(name), x, REVERSE, {})
    assert module.model is model
    assert [n for n, _ in module.named_parameters()] == [f"{module.prefix}{n}" for n, _ in model.named_parameters()]
    assert all(a is b for a, b in zip(module.parameters(), model.parameters(), strict=True))
    module.eval()
    assert not model.training


@pytest.mark.parametrize("name", VARIANTS)
def test_fields_of_a_variant(name):
    one = VARIANTS[name]
    assert one.name == name
    assert one.title
    assert bool(one.mode) is (one.kind == "reverse")
    assert bool(one.meaning) is (name != "Std")
    assert variant(name) is one
    between = variant(name, joins=True)
    assert between is one if name != "RR" else (between.name, between.kind, between.mode) == ("RR", "reverse", "auto")


def test_figures_tell_all_variants_apart():
    looks = [look(name) for name in VARIANTS]
    assert len({one["color"] for one in looks}) == len(VARIANTS)
    assert len({one["marker"] for one in looks}) == len(VARIANTS)


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


# The controls, through the stages of an experiment


def jobs(names, **config):
    given = INFORMATION.Config(epochs=1, finetune=1, **config)
    return make_jobs(INFORMATION, given, names, [0], None)


def test_dropout(tmp_path):
    """It is on in the first stage and off in the next ones; weights have the same names in both."""
    (job,) = jobs(["Drop"])
    store = Store(tmp_path)
    task = INFORMATION.data(job.config, 0, None)["A"]
    first = begin(job, job.stages[0], task, store, "cpu")
    places = [module.p for module in first.modules() if isinstance(module, nn.Dropout)]
    assert places == [0.1] * 5  # after every hidden layer
    do(job, store, TrainingOptions(), Maker("test", "here"))
    assert all(store.get(id).finished for id in job.ids.values())
    second = begin(job, job.stages[1], task, store, "cpu")
    assert not any(isinstance(module, nn.Dropout) and module.p for module in second.modules())
    before = store.weights(job.ids["A"])
    assert all(value.equal(before[name]) for name, value in second.state_dict().items())


@pytest.mark.parametrize("name, config", [("digits", {"shipped": True}), ("peaks", {"nets": ("linear",)})])
def test_dropout_where_there_is_no_place_for_it(name, config, tmp_path):
    """It is refused: plain training under another name would be no control."""
    one = experiment(name)
    (job,) = make_jobs(one, one.Config(epochs=1, **config), ["Drop"], [0], None)
    with pytest.raises(ValueError, match="dropout"):
        do(job, Store(tmp_path), TrainingOptions(), Maker("test", "here"))


def test_pretraining_starts_elsewhere_and_the_others_at_the_same_place(tmp_path):
    names = list(VARIANTS)
    task = INFORMATION.data(INFORMATION.Config(), 0, None)["A"]
    task = replace(task, train=Split(task.train.x[:200], task.train.y[:200]))
    starts = {}
    for job in jobs(names):
        model = begin(job, job.stages[0], task, Store(tmp_path), "cpu")
        starts[job.variant] = torch.cat([p.detach().flatten() for p in model.parameters()])
    for name in names:
        assert starts[name].equal(starts["Std"]) is (name != "Pre"), name


# Networks


def test_glorot():
    model = glorot(dense((400, 300, 200), nn.ReLU, norm=True))
    for layer in (m for m in model if isinstance(m, nn.Linear)):
        limit = (6 / sum(layer.weight.shape)) ** 0.5
        assert layer.weight.abs().max() <= limit
        assert layer.weight.abs().max() > 0.99 * limit
        assert abs(float(layer.weight.detach().var()) / (limit**2 / 3) - 1) < 0.02
        assert not layer.bias.any()


@pytest.mark.parametrize(
    "options, kinds",
    [
        ({}, "Linear Linear"),
        ({"activation": nn.Tanh}, "Linear Tanh Linear"),
        ({"activation": nn.ReLU, "norm": True}, "Linear BatchNorm1d ReLU Linear"),
        ({"activation": nn.ReLU, "norm": True, "last": True}, "Linear BatchNorm1d ReLU Linear BatchNorm1d ReLU"),
        ({"activation": nn.ReLU, "dropout": 0.5}, "Linear ReLU Dropout Linear"),
    ],
    ids=str,
)
def test_dense(options, kinds):
    model = dense((12, 5, 2), **options)
    parts = [type(m).__name__ for m in model.modules() if not isinstance(m, (nn.Sequential, nn.Flatten))]
    assert parts == kinds.split()
    assert model.eval()(torch.zeros(4, 1, 3, 4)).shape == (4, 2)

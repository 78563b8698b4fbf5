"""The safety map, in small: its data and nets, and what it measures."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar.cli.app import run as command
from racecar_lab.datasets import MNIST
from racecar_lab.experiment import Trained
from racecar_lab.experiments import experiment
from racecar_lab.experiments.safety import Safety
from racecar_lab.experiments.safety.design import CONTEXTS, fields_of
from racecar_lab.measures.dead import is_dead
from racecar_lab.running.engines.batching import groups_of
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from tests.lab.experiments.pictures import write_mnist
from tests.lab.tiny import run

SAFETY = experiment("safety")
SMALL = {"images": 20, "epochs": 1, "batch": 10, "labels": (2, 3), "draws": 2, "tests": 20}
ONE = SAFETY.Config(design="one", **SMALL)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Two hundred pictures to train on and a hundred to test on; the folder that they are in."""
    folder = tmp_path_factory.mktemp("pictures")
    counts = {"train": 200, "test": 100}
    write_mnist(folder, counts, np.random.default_rng(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Safety, "source", replace(MNIST, counts=counts))
        yield folder


# Data and nets


def test_data(pictures):
    tasks = SAFETY.data(ONE, 0, pictures)
    assert tasks["A"].train.x.shape == (20, 1, 14, 14)
    assert tasks["A"].train.y.unique().tolist() == tasks["B"].test.y.unique().tolist() == list(range(5))
    assert SAFETY.data(ONE, 0, pictures)["A"].train.x is tasks["A"].train.x  # read once
    assert not torch.equal(SAFETY.data(ONE, 1, pictures)["A"].train.x, tasks["A"].train.x)
    x, y = Safety.source.load(pictures, "test")
    wanted = nn.functional.avg_pool2d(x[y >= 5][:20].float() / 255, 2)
    torch.testing.assert_close(tasks["B"].test.x, wanted)


@pytest.mark.parametrize("context", [one for one in CONTEXTS if one.lr == 1e-3 and one.depth > 3], ids=str)
def test_nets(context):
    torch.manual_seed(0)
    net = SAFETY.network(replace(ONE, **context._asdict()))
    convs = [one for one in net.modules() if isinstance(one, nn.Conv2d)]
    assert len(convs) == context.depth
    assert [one.out_channels for one in convs] == [w for w in (16, 32, 32) for _ in range(context.depth // 3)]
    assert net(torch.rand(2, 1, 14, 14)).shape == (2, 5)
    kind = {"none": type(None), "batch": nn.BatchNorm2d, "group": nn.GroupNorm}[context.norm]
    assert sum(isinstance(one, kind) for one in net.modules()) == (0 if context.norm == "none" else context.depth)
    last = convs[-1].weight.detach().flatten(1)
    if context.start == "orthogonal":
        torch.testing.assert_close(last @ last.t(), 2 * torch.eye(32), rtol=1e-4, atol=1e-4)
    else:
        std = (2 / 288) ** 0.5 if context.start == "he" else (1 / 3 / 288) ** 0.5
        assert float(last.std()) == pytest.approx(std, rel=0.1)
    assert (float(convs[0].bias.detach().abs().max()) == 0) is (context.start != "torch")


def test_every_layer_is_constrained():
    net, given = SAFETY.network(ONE), SAFETY.reverse(ONE)
    rr = Racecar(net, torch.rand(4, 1, 14, 14), mode="full", **given)
    rr(torch.rand(4, 1, 14, 14))
    assert {name.split(".")[0] for name in rr.terms} == {"features", "classifier"}
    assert len(rr.terms) == 4
    assert (rr.gradient, rr.reduction, rr.fraction) == ("both", "mean", 1.0)


@pytest.mark.parametrize("mode", ["full", "layerwise"])
@pytest.mark.parametrize("depth, norm", [(3, "none"), (6, "batch"), (12, "group")])
def test_the_classifier_is_left_out(depth, norm, mode):
    """Exactly it, and nothing else; the reverse pass does not even go through it. The mean is over the others."""
    net, x = SAFETY.network(replace(ONE, depth=depth, norm=norm)), torch.rand(4, 1, 14, 14)
    wanted = [name for name, one in net.named_modules() if isinstance(one, nn.Conv2d)]
    found = {}
    for layers in ("all", "body"):
        rr = Racecar(net, x, mode=mode, **SAFETY.reverse(replace(ONE, depth=depth, norm=norm, layers=layers)))
        _, loss = rr(x)
        assert len(rr.plan) == depth + 1
        assert loss.item() == pytest.approx(sum(one.item() for one in rr.terms.values()) / len(rr.terms))
        found[layers] = {one.name: one for one in rr.plan}
        assert list(rr.terms) == [name for name, one in found[layers].items() if one.constrained]
    assert all(one.constrained for one in found["all"].values())
    (left_out,) = (one for one in found["body"].values() if not one.constrained)
    assert net.get_submodule(left_out.name) is net.classifier[0]
    assert not left_out.passed
    assert [name for name, one in found["body"].items() if one.constrained] == wanted


# Trained


@pytest.mark.parametrize(
    "loss, norm",
    [("both:ratio:layerwise", "batch"), ("reverse:anchored:full", "group"), ("weights:mean:layerwise", "none")],
)
def test_the_engines_agree(loss, norm, pictures, tmp_path):
    """Starts, λ, step sizes and seeds as one batch of nets, and each by itself."""
    jobs = []
    for start, lam, lr, seed in (("he", 0.1, 1e-3, 0), ("orthogonal", 1.0, 1e-3, 1), ("torch", 1.0, 3e-3, 0)):
        config = replace(ONE, **{**fields_of((loss, lam)), "norm": norm, "start": start, "lr": lr})
        jobs += make_jobs(SAFETY, config, SAFETY.variants, [seed], pictures)
    assert list(map(len, groups_of(jobs))) == [3]
    for engine in ("here", "vmap"):
        assert run(jobs, tmp_path / engine, engine) == []
        assert not (tmp_path / engine / "weights").exists()
    here, other = ({run.id: run for run in Store(tmp_path / engine).runs()} for engine in ("here", "vmap"))
    assert here.keys() == other.keys()
    for id, one in here.items():
        for name, curve in one.record["curves"].items():
            assert other[id].record["curves"][name] == pytest.approx(curve, rel=1e-3), name
        assert set(one.metrics) == {"source_accuracy", "dead", "probe_2", "probe_3"}
        assert other[id].metrics["probe_3"] == pytest.approx(one.metrics["probe_3"], abs=0.101)
        assert len(json.dumps(one.record, separators=(",", ":"))) < 1900


def test_what_is_measured(pictures, tmp_path):
    """By hand, on a net whose first block is dead and one that says always the same."""
    net = SAFETY.network(ONE).eval()
    x = torch.rand(8, 1, 14, 14)
    with torch.no_grad():
        net.features[0].weight.zero_()
        net.features[0].bias.copy_(-torch.ones(16))
    assert is_dead(net, x)
    tasks = SAFETY.data(ONE, 0, pictures)
    trained = Trained(SAFETY.stages(ONE)[0], net, tasks["A"], 0, "lRR", torch.device("cpu"), pictures, tasks=tasks)
    found = SAFETY.measure(ONE, trained).metrics
    assert found["dead"] == 1.0
    assert found["probe_2"] == pytest.approx(0.2)  # constant features: always the same class


def test_quick_through_the_command_line(pictures, tmp_path, capsys):
    out = str(tmp_path / "out")
    small = ["images=40", "epochs=1", "labels=10", "tests=20", "weights=0.1"]
    given = ["--seeds=1", f"--data={pictures}", "--other-data", f"--out={out}", "--workers=1"]
    assert command(["run", "safety", "--quick", *given, *(f"--set={one}" for one in small)]) == 0
    first, *told = capsys.readouterr().out.splitlines()
    assert first == "a quick run: no evidence, and nothing of it is judged"
    assert not any("hosen" in line for line in told)
    assert {run.variant for run in Store(tmp_path / "out").runs()} == {"Std", "lRR"}
    assert command(["report", out]) == 0

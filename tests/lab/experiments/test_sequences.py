"""Sequences, in small: data, what is compared in the nets, every task trained and measured again, search, claims."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from racecar import Racecar
from racecar_lab.datasets import MNIST, sequences
from racecar_lab.experiments import experiment
from racecar_lab.experiments.sequences import Sequences
from racecar_lab.report.claims import judge
from racecar_lab.report.groups import gather
from racecar_lab.report.verdicts import CONTRADICTED, SUPPORTED
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.running.search import trials
from racecar_lab.training.objective import Orthogonal, Reverse
from racecar_lab.training.variants import variant
from tests.lab.experiments.pictures import write_mnist
from tests.lab.report.records import record, runs
from tests.lab.running.test_engines import assert_same
from tests.lab.tiny import results, run

SEQUENCES = experiment("sequences")
TINY = SEQUENCES.Config(task="add", length=4, hidden=6, samples=16, tests=8, epochs=2, batch=8, fraction=0.5)
COUNTS = {"train": 40, "test": 20}


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    write_mnist(tmp_path, COUNTS, np.random.default_rng(0))
    monkeypatch.setattr(Sequences, "source", replace(MNIST, counts=COUNTS))
    return tmp_path


def samples(split):
    return {bytes(one.numpy()) for one in split.x}


# Data


@pytest.mark.parametrize("length", [3, 7])
def test_adding(length):
    """Two marks, one in either half, anywhere there; the answer is the sum of their numbers."""
    x, y = sequences.adding(200, length, torch.Generator().manual_seed(0))
    seen = set()
    for one, answer in zip(x, y, strict=True):
        first, second = [place for place in range(length) if one[place, 1] == 1]
        assert first < length // 2 <= second
        assert answer == one[first, 0] + one[second, 0]
        seen |= {first, second}
    assert set(x[..., 1].unique().tolist()) == {0, 1}
    assert seen == set(range(length))
    assert 0 <= x.min() <= x.max() <= 1
    assert x[..., 0].mean() == pytest.approx(0.5, abs=0.05)


def test_copying():
    """The symbols, a gap, a sign, and steps to say them in; all patterns differ, and all symbols are there."""
    x, y = sequences.copying(300, 3, torch.Generator().manual_seed(0))
    assert torch.equal(x.sum(-1), torch.ones(300, 13))
    blank, go = sequences.BLANK, sequences.GO
    for seen, symbols in zip(x.argmax(-1).tolist(), y.tolist(), strict=True):
        assert seen == [*symbols, *[blank] * 3, go, *[blank] * 4]
    assert len(set(map(tuple, y.tolist()))) == 300
    assert all(y[:, i].unique().tolist() == list(range(8)) for i in range(5))
    with pytest.raises(ValueError, match="40000 samples are asked for: there are 32768"):
        sequences.copying(40000, 3, torch.Generator())


def test_rows():
    """Every pixel once, in an order that is the same for all pictures and has no row left."""
    places = torch.arange(784).view(1, 1, 28, 28)
    (order,) = (255 * sequences.rows(places)).round().long()
    assert order.flatten().sort().values.tolist() == list(range(784))
    assert all(len({place // 28 for place in row}) > 10 for row in order.tolist())
    some = torch.randint(0, 256, (2, 1, 28, 28), dtype=torch.uint8)
    for picture, read in zip(some, sequences.rows(some), strict=True):
        assert torch.equal(read, picture.flatten()[order] / 255)


@pytest.mark.parametrize("task", ["rows", "add", "copy"])
def test_splits(task, pictures):
    """No sample is in two of them; a search holds out samples of the same training set."""
    config = replace(TINY, task=task)
    first = SEQUENCES.data(config, 0, pictures)["A"]
    assert (len(first.train), len(first.test), first.valid) == (16, 8, None)
    searched = SEQUENCES.data(replace(config, valid=0.25), 0, pictures)["A"]
    assert (len(searched.train), len(searched.valid)) == (12, 4)
    assert searched.test is searched.valid
    assert samples(searched.train) | samples(searched.valid) == samples(first.train)
    assert not samples(searched.train) & samples(searched.valid)
    assert not samples(first.train) & samples(first.test)


def test_too_few_samples(pictures):
    with pytest.raises(ValueError, match="samples=41: there are 40 to train on"):
        SEQUENCES.data(replace(TINY, task="rows", samples=41), 0, pictures)
    with pytest.raises(ValueError, match="of 16 samples, 0 are held out"):
        SEQUENCES.data(replace(TINY, valid=0.01), 0, None)


# Nets


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("layers", [1, 2])
def test_what_is_compared(cell, layers):
    """The layer before the cell and all projections, which lRR and RR have alike: RR comes to the first from what the
    cell's input projection rebuilt. Ort sees the same weights."""
    config = replace(TINY, cell=cell, layers=layers)
    model, x = SEQUENCES.network(config).double(), SEQUENCES.data(config, 0, None)["A"].train.x.double()
    projections = [f"cell.{name}" for name, one in model.cell.named_parameters() if one.dim() > 1]
    options = {**SEQUENCES.reverse(config), "scale": "mean", "fraction": 1.0}
    terms = {}
    for name in ("RR", "lRR"):
        module = Reverse(model, x, mode=variant(name, SEQUENCES.joins).mode, **options)
        _, loss = module(x)
        terms[name] = dict(module.terms)
        assert list(terms[name]) == ["enter", *projections]
        assert len(terms[name]) == 1 + 2 * config.layers
        torch.testing.assert_close(loss.detach(), torch.stack(list(terms[name].values())).mean())
    assert all(torch.equal(terms["RR"][name], terms["lRR"][name]) for name in projections)
    (w, b), v = model.enter.parameters(), model.cell.weight_ih_l0
    d2 = torch.tanh(x @ w.T + b)
    for name, start in (("lRR", d2), ("RR", torch.tanh(d2 @ v.T @ v))):
        torch.testing.assert_close(terms[name]["enter"], (x - (start - b) @ w).square().mean().detach())
    module = Orthogonal(model, **SEQUENCES.orthogonality(config))
    module(x, noise=torch.randn(module.noise).to(x))[1].backward()
    assert {name for name, one in model.named_parameters() if one.grad is not None} == {"enter.weight", *projections}


# Trainings


RUNS = [("rows", "lstm", 1, ("RR",)), ("add", "gru", 1, ("Std", "RR")), ("copy", "rnn", 2, ("Ort", "lRR"))]


@pytest.mark.parametrize("task, cell, layers, variants", RUNS)
def test_runs(task, cell, layers, variants, pictures, tmp_path):
    """Each is trained, and what is measured is found again sample by sample."""
    config = replace(TINY, task=task, cell=cell, layers=layers)
    jobs = make_jobs(SEQUENCES, config, variants, [3], pictures)
    assert run(jobs, tmp_path / "out") == []
    store, test = Store(tmp_path / "out"), SEQUENCES.data(config, 3, pictures)["A"].test
    for job in jobs:
        found = store.get(job.ids["A"]).metrics
        model = SEQUENCES.network(config).eval()
        model.load_state_dict(store.weights(job.ids["A"]))
        right, away = [], []
        with torch.no_grad():
            for x, y in zip(test.x, test.y, strict=True):
                answer = model(x[None])[0]
                if task == "add":
                    away.append(float(answer[0] - y))
                else:
                    said = answer.view(-1, answer.shape[-1]).tolist()
                    asked = y.view(-1).tolist()
                    right += [one.index(max(one)) == wanted for one, wanted in zip(said, asked, strict=True)]
            rr = Racecar(model, test.x, mode="layerwise", weight={"*": 1.0, "head": 0.0}, scale="relative")
            rr(test.x)
        wanted = {"test_accuracy": np.mean(right)} if right else {
            "test_mse": np.mean(np.square(away)), "test_within": np.mean(np.abs(away) < 0.04)
        }  # fmt: skip
        wanted["reverse_loss"] = float(torch.stack(list(rr.terms.values())).mean())
        assert found == pytest.approx(wanted, rel=1e-4)


def test_many_nets_at_once(tmp_path):
    """On a CPU, where torch.func can do what these cells are made of."""
    jobs = make_jobs(SEQUENCES, replace(TINY, cell="gru"), ("Ort", "RR"), [0, 1], None)
    for engine in ("here", "vmap"):
        assert run(jobs, tmp_path / engine, engine) == []
    assert_same(results(tmp_path / "vmap"), results(tmp_path / "here"))


def test_what_cannot_be_batched(tmp_path):
    (failure,) = run(make_jobs(SEQUENCES, TINY, ("Std",), [0, 1], None), tmp_path, "vmap")
    assert failure.message.endswith("does not do LSTM on cpu, which torch cannot batch: use --engine here")


# Search and claims


@pytest.mark.parametrize("task, metric", [("rows", "valid_accuracy"), ("add", "valid_mse"), ("copy", "valid_accuracy")])
def test_the_search(task, metric, pictures, tmp_path):
    """It is judged by what is claimed of; accuracy is on the curves of pictures alone, of others it would be none."""
    config = replace(TINY, task=task, valid=0.25)
    space = SEQUENCES.search_for(config)
    assert (space.metric, space.higher) == (metric, task != "add")
    assert run(trials(SEQUENCES, space, config, ["RR"], pictures)[:1], tmp_path / "out") == []
    (found,) = results(tmp_path / "out").values()
    assert metric in found["metrics"]
    assert ("valid_accuracy" in found["curves"]) is (task == "rows")


@pytest.mark.parametrize("task", ["rows", "add", "copy"])
def test_claims(task):
    """RR and lRR against Std and Ort, on each task by itself; of errors, less is better."""
    metric, scores = "test_mse" if task == "add" else "test_accuracy", {"Std": 0.5, "Ort": 0.7, "RR": 0.6, "lRR": 0.6}
    config = SEQUENCES.Config(task=task).to_dict()
    found = judge(SEQUENCES.claims, gather(runs([
        record(name, seed, {metric: score + 0.001 * (seed % 3)}, experiment="sequences", config=config)
        for name, score in scores.items() for seed in range(5)
    ])))  # fmt: skip
    assert sorted((one.claim.better, one.claim.than) for one in found) == sorted(product(("RR", "lRR"), ("Std", "Ort")))
    for one in found:
        more = one.claim.than == "Std"
        assert one.claim.metric == metric
        assert one.verdict == (SUPPORTED if more is (task != "add") else CONTRADICTED)
        assert one.claim.minimum_seeds == 5

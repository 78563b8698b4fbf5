"""Long training, in small: its data, nets and search, every engine, what is measured again by hand, and its claims."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from racecar_lab.datasets import CIFAR10
from racecar_lab.experiments import experiment
from racecar_lab.experiments.long_training import LongTraining
from racecar_lab.report.claims import judge
from racecar_lab.report.groups import gather
from racecar_lab.report.verdicts import CONTRADICTED, SUPPORTED, UNDECIDED
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import PAPER
from tests.lab.experiments.pictures import write_cifar
from tests.lab.report.records import record
from tests.lab.tiny import run

LONG = experiment("long-training")
TINY = LONG.Config(images=20, widths=(2, 3, 4), epochs=2, batch=8, cost=1.0)
COUNTS = {"train": 100, "test": 40}


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    write_cifar(tmp_path, COUNTS, np.random.default_rng(0))
    monkeypatch.setattr(LongTraining, "source", replace(CIFAR10, counts=COUNTS))
    return tmp_path


def back(split, like):
    """Pictures as they are in the files, one row each, from standardised ones."""
    sd, mean = torch.std_mean(like.float() / 255, (0, 2, 3), keepdim=True)
    return {bytes(one) for one in (255 * (split.x * sd + mean)).round().byte().flatten(1).numpy()}


# Data


def test_all_pictures_or_some(pictures):
    """Every colour has mean 0 and standard deviation 1 in the training set; the test set goes by the same numbers."""
    (x, _), (test_x, test_y) = (LONG.source.load(pictures, name) for name in ("train", "test"))
    task = LONG.data(replace(TINY, images=0), 0, pictures)["A"]
    assert (len(task.train), len(task.test), task.valid) == (100, 40, None)
    sd, mean = torch.std_mean(task.train.x, (0, 2, 3))
    torch.testing.assert_close((sd, mean), (torch.ones(3), torch.zeros(3)), atol=1e-5, rtol=1e-5)
    files = {bytes(one) for one in x.flatten(1).numpy()}
    assert back(task.train, x) == files
    assert back(task.test, x) == {bytes(one) for one in test_x.flatten(1).numpy()}
    assert torch.equal(task.test.y, test_y)
    assert len(LONG.data(TINY, 0, pictures)["A"].train) == 20
    assert len(LONG.data(replace(TINY, tests=7), 0, pictures)["A"].test) == 7


def test_what_a_search_holds_out(pictures):
    _, y = LONG.source.load(pictures, "train")
    task = LONG.data(replace(TINY, images=0, valid=0.4), 0, pictures)["A"]
    assert (len(task.train), len(task.valid)) == (60, 40)
    assert torch.cat((task.train.y, task.valid.y)).bincount().tolist() == y.bincount().tolist()  # each picture once
    assert torch.equal(task.valid.x, task.test.x)
    with pytest.raises(ValueError, match="images=61: there are 60 to train on"):
        LONG.data(replace(TINY, images=61, valid=0.4), 0, pictures)


# Nets


@pytest.mark.parametrize("depth", [6, 9])
def test_nets(depth):
    """First weights are He's, with and without batch norm."""
    found = {}
    for norm in ("none", "batch"):
        config = replace(TINY, norm=norm, depth=depth, widths=(8, 16, 32))
        torch.manual_seed(0)
        model = LONG.network(config)
        convolutions = {name: part for name, part in model.named_modules() if isinstance(part, nn.Conv2d)}
        each = depth // 3
        assert [one.out_channels for one in convolutions.values()] == [*[8] * each, *[16] * each, *[32] * each]
        assert any(isinstance(one, nn.BatchNorm2d) for one in model.modules()) is (norm == "batch")
        found[norm] = [one.weight for one in convolutions.values()]
        last = found[norm][-1]
        assert float(last.detach().std()) == pytest.approx((2 / last[0].numel()) ** 0.5, rel=0.05)
    assert all(torch.equal(a, b) for a, b in zip(*found.values(), strict=True))


# Training


@pytest.mark.parametrize("valid, kind", [(0.0, "test"), (0.4, "valid")])
def test_what_is_measured(valid, kind, pictures, tmp_path):
    """Of a net with batch norm, from its weights; a search is judged by what it held out."""
    config = replace(TINY, norm="batch", valid=valid, precision="bfloat16")
    (job,) = make_jobs(LONG, config, ["Std"], [0], pictures)
    assert run([job], tmp_path / "out") == []
    store, split = Store(tmp_path / "out"), LONG.data(config, 0, pictures)["A"].test
    model = LONG.network(config)
    model.load_state_dict(store.weights(job.ids["A"]))
    with torch.no_grad():
        shares = model.eval()(split.x).double().softmax(1).numpy()
    y, sure = split.y.numpy(), shares.max(1)
    right, ece = shares.argmax(1) == y, 0.0
    for i in range(15):
        inside = (sure > i / 15) & (sure <= (i + 1) / 15)
        ece += abs(right[inside].sum() - sure[inside].sum()) / len(y)
    wanted = {"accuracy": right.mean(), "nll": -np.log(shares[np.arange(len(y)), y]).mean(), "ece": ece}
    assert store.get(job.ids["A"]).metrics == pytest.approx({f"{kind}_{n}": v for n, v in wanted.items()}, rel=1e-5)


def test_with_batch_norm_nothing_is_trained_longer(pictures):
    jobs = make_jobs(LONG, replace(TINY, norm="batch", cost=1.15), LONG.variants, [0], pictures)
    assert not any(job.config.longer for job in jobs)


# Claims


def made_up(variant, seed, score, id, tuned=None, **config):
    """With a score from 0 to 1 that is good in every metric."""
    metrics = {"test_accuracy": score, "test_nll": 2 - score, "test_ece": 1 - score}
    base = {**LONG.Config().to_dict(), **config}
    return Run(record(variant, seed, metrics, experiment="long-training", config=base, tuned=tuned or {}, id=id))


SCORES = {"Std": 0.5, "Ort": 0.6, "RR": 0.55, "lRR": 0.5}


@pytest.fixture
def runs():
    """Two depths, with what a search chose: RR lies between Std and Ort, and below Std with batch norm; with the
    paper's loss, too."""
    kinds = [(name, {}, score) for name, score in SCORES.items()]
    kinds += [(name, PAPER, SCORES[name]) for name in ("RR", "lRR")]
    kinds += [("Std", {"longer": True}, 0.52), ("Std", {"norm": "batch"}, 0.9)]
    noise = np.random.default_rng(0)
    return [
        made_up(name, seed, score - 0.01 * depth + 0.002 * noise.standard_normal(), f"{depth}-{i}-{seed}",
                {"lr": 1e-3 * (i + 1), "weight_decay": 0.1 / (i + 1)}, depth=depth, **more)
        for depth in (6, 9) for i, (name, more, score) in enumerate(kinds) for seed in range(10)
    ]  # fmt: skip


def test_claims(runs):
    """Each has its two sides, at either depth; less is better but for the accuracy."""
    findings = judge(LONG.claims, gather(runs), lambda config, name: None)
    assert len(findings) == 2 * 2 * len(LONG.claims) == 2 * 2 * 5 * 3
    for one in findings:
        ours, other = one.sides[0].config, one.sides[1].config
        assert (ours["norm"], ours["longer"]) == ("none", False)
        assert other["norm"] == ("batch" if "batch norm" in one.claim.text else "none")
        assert other["longer"] is ("seconds" in one.claim.text)
        assert ours["depth"] == other["depth"]
        better = SUPPORTED if other["norm"] == "none" else CONTRADICTED
        expected = UNDECIDED if one.claim.better == "lRR" else CONTRADICTED if one.claim.than == "Ort" else better
        assert one.verdict == expected, one.claim.text


# Figures


def texts(axis):
    return [one.get_text() for one in axis.get_yticklabels()]


def test_figures(runs):
    """One for each question, a panel for each depth, a row for each kind of net with its mean in its place."""
    figures = LONG.reporting.figures(runs)
    metrics = {"test_accuracy": 100, "test_nll": 1, "test_ece": 100}
    for figure, (metric, factor) in zip(figures.values(), metrics.items(), strict=True):
        for axis, depth in zip(figure.axes, (6, 9), strict=True):
            paper = ["RR, the paper's loss", "lRR, the paper's loss"]
            assert texts(axis) == ["Std", "Ort", "RR", "lRR", *paper, "Std, longer", "Std, batch norm"]
            dots = [line for line in axis.lines if line.get_markersize() == 4 and len(line.get_xdata()) == 10]
            means = [line for line in axis.lines if line.get_markersize() == 8]
            for y, name in enumerate(texts(axis)):
                own = [
                    run.metrics[metric] for run in runs
                    if (run.config["depth"], run.variant) == (depth, name.split(",")[0])
                    and (run.config["longer"], run.config["norm"] == "batch") == ("longer" in name, "norm" in name)
                    and (run.config["scale"] == "sum") == ("paper" in name)
                ]  # fmt: skip
                assert list(dots[y].get_xdata()) == pytest.approx([factor * one for one in own])
                assert means[y].get_xydata().tolist() == [pytest.approx([factor * np.mean(own), y])]


def test_dead_nets_are_counted_and_not_drawn(runs):
    """Nor do quick or searched runs without a test metric draw anything."""
    first = next(run for run in runs if run.variant == "RR")
    others = [run for run in runs if run is not first]
    dead = Run({**first.record, "dead": ["features.0"], "metrics": {**first.metrics, "test_accuracy": 0.1}})
    axis = next(iter(LONG.reporting.figures([dead, *others]).values())).axes[0]
    assert "RR (1 of 10 dead)" in texts(axis)
    assert min(x for line in axis.lines for x in line.get_xdata()) > 30
    searched = Run({**first.record, "metrics": {"valid_accuracy": 0.5}})
    assert LONG.reporting.figures([searched]) == {}

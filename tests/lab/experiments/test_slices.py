"""Slices of the reverse pass, on the 12-bit net and, in small, on MNIST and CIFAR-10 in their publishers' layouts."""

import copy
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from racecar import Racecar
from racecar.inspect import calibrate, invertibility
from racecar_lab.datasets import CIFAR10, MNIST
from racecar_lab.experiment import Trained, accuracy
from racecar_lab.experiments import OURS, experiment
from racecar_lab.experiments.slices import BATCH, SLICES, Slices, SlicesCifar, SlicesMnist, reverse_loss
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.running.starting import begin, training
from racecar_lab.training import augment
from racecar_lab.training.single import Single
from racecar_lab.training.spec import TrainingOptions
from tests.lab.experiments.pictures import write_cifar, write_mnist
from tests.lab.report.records import record, runs
from tests.lab.tiny import results, run

BITS = experiment("slices")
SHORT = BITS.Config(epochs=2)
COUNTS = {"train": 20, "test": 10}


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Twenty pictures to train on and ten to test on, of either kind; the folder that they are in."""
    rng = np.random.default_rng(0)
    write_mnist(tmp_path, COUNTS, rng)
    write_cifar(tmp_path, COUNTS, rng)
    monkeypatch.setattr(SlicesMnist, "source", replace(MNIST, counts=COUNTS))
    monkeypatch.setattr(SlicesCifar, "source", replace(CIFAR10, counts=COUNTS))
    return tmp_path


def test_what_is_run():
    """Every slice with both optimisers; Std once for each, since it has no reverse pass."""
    jobs = make_jobs(BITS, SHORT, ["Std", "RR"], [0], None)
    found = [(job.variant, job.config.optimiser, job.config.fraction, job.config.every) for job in jobs]
    wanted = {("RR", optimiser, *one) for optimiser, one in product(("adam", "sgd"), SLICES)}
    assert set(found) == wanted | {("Std", optimiser, 1.0, 1) for optimiser in ("adam", "sgd")}
    assert len(found) == len(set(found)) == 14
    assert {job.config.lr for job in jobs if job.config.optimiser == "sgd"} == {SHORT.lr_sgd}
    assert len({id for job in jobs for id in job.ids.values()}) == 14


def test_one_slice_alone_is_the_same_run():
    one = replace(SHORT, grid=False, fraction=1 / 8, every=4, optimiser="sgd", lr=SHORT.lr_sgd)
    (job,) = make_jobs(BITS, one, ["RR"], [0], None)
    assert job.ids in [other.ids for other in make_jobs(BITS, SHORT, ["RR"], [0], None)]
    for change in ({"fraction": 0.5}, {"every": 2}, {"optimiser": "sgd"}):
        with pytest.raises(ValueError, match="grid=false"):
            make_jobs(BITS, replace(SHORT, **change), ["RR"], [0], None)


def test_claims():
    """Both metrics of every slice but the exact one, against it; margins as they were stated before the runs."""
    for one in (one for one in OURS if isinstance(one, Slices)):
        assert len(one.claims) == len({claim.text for claim in one.claims}) == 2 * 2 * (len(SLICES) - 1)
        limits = {(claim.metric, claim.margin, claim.relative) for claim in one.claims}
        assert limits == {
            ("reverse_loss", 0.03, True), ("test_accuracy", 0.02 if one is BITS else 0.01, False)
        }  # fmt: skip
        configs = [config.to_dict() for config in one.configs(one.Config(), None)]
        for claim in one.claims:
            sides = claim.where, {**claim.where, **claim.against}
            pair = [[c for c in configs if all(c[n] == v for n, v in side.items())] for side in sides]
            assert [len(found) for found in pair] == [1, 1]
            (a,), (b,) = pair
            assert {name for name in a if a[name] != b[name]} <= {"fraction", "every"}
            assert claim.than == claim.better == "RR"
        assert one.reporting.section == "ours"
        assert one.seeds == (10 if one is BITS else 5)


def test_pictures(pictures):
    """Digits are in [0, 1]; colours have mean 0 and standard deviation 1."""
    digits, colours = (experiment(name) for name in ("slices-mnist", "slices-cifar"))
    x = digits.data(digits.Config(), 0, pictures)["A"].train.x
    assert 0 <= x.min() < x.max() == 1
    x = colours.data(colours.Config(), 0, pictures)["A"].train.x
    assert x.mean((0, 2, 3)).abs().max() < 1e-5
    torch.testing.assert_close(x.std((0, 2, 3)), torch.ones(3))


def test_reverse_loss():
    """The mean over layers of what `invertibility` finds, batch by batch."""
    torch.manual_seed(0)
    model, x = BITS.network(SHORT).eval(), torch.rand(2 * BATCH + 500, 12)
    truth = [[depth.way for depth in invertibility(model, part)] for part in (x[:BATCH], x[BATCH:-500], x[-500:])]
    means = [sum(one) / len(one) for one in truth]
    wanted = (means[0] * BATCH + means[1] * BATCH + means[2] * 500) / len(x)
    assert reverse_loss(model, x, {"*": 1.0}, True) == pytest.approx(wanted, rel=1e-5)
    assert reverse_loss(model, x, {"*": 0.3}, False) == pytest.approx(wanted, rel=1e-5)  # before λ


def test_the_reverse_loss_with_batch_norm(pictures):
    """With the statistics of the batch, as in training, and with the running ones; none is changed."""
    one = experiment("slices-cifar")
    config = one.Config(width=1 / 16)
    task = one.data(config, 0, pictures)["A"]
    torch.manual_seed(0)
    model = one.network(config).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trained = Trained(one.stages(config)[0], model, task, 0, "RR", torch.device("cpu"))
    metrics = one.measure(config, trained).metrics
    assert metrics["test_accuracy"] == accuracy(model, task.test)
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    rr = Racecar(copy.deepcopy(model), task.test.x, mode="full", weight=one.reverse(config)["weight"], scale="relative")
    for name, mode in (("reverse_loss_running", False), ("reverse_loss", True)):  # the second changes statistics
        with torch.no_grad():
            rr.train(mode)(task.test.x)
        wanted = float(torch.stack(list(rr.terms.values())).mean())
        assert metrics[name] == pytest.approx(wanted, rel=0.01)
    assert metrics["reverse_loss"] != pytest.approx(metrics["reverse_loss_running"])
    rr = Racecar(copy.deepcopy(model), task.test.x, mode="full", weight=one.reverse(config)["weight"])
    calibrate(rr, [task.train.x])
    rr.eval()(task.test.x)
    assert metrics["reverse_loss_eval"] == pytest.approx(float(torch.stack(list(rr.terms.values())).mean()), rel=1e-4)


# Flips and shifts


def test_moves_by_hand():
    """Each picture by itself, with slices of a padded copy."""
    x = torch.rand(40, 2, 5, 7)
    moves = augment.moves(2, (1, 40), 0, "A", 0)[0]
    got = augment.move(x, moves, 2)
    for picture, (flip, top, left), moved in zip(x, moves.tolist(), got, strict=True):
        wide = torch.zeros(2, 9, 11)
        wide[:, 2:7, 2:9] = picture
        cut = wide[:, top : top + 5, left : left + 7]
        assert torch.equal(moved, cut.flip(2) if flip else cut)


def test_moves_are_drawn_from_the_seed():
    moves = augment.moves(4, (3, 500), 0, "A", 0)
    assert torch.equal(moves, augment.moves(4, (3, 500), 0, "A", 0))
    for other in ((1, "A", 0), (0, "B", 0), (0, "A", 1)):
        assert not torch.equal(moves, augment.moves(4, (3, 500), *other))
    assert moves[..., 0].unique().tolist() == [0, 1]
    assert moves[..., 1:].unique().tolist() == list(range(9))
    middle = torch.tensor([[0, 4, 4]])
    x = torch.rand(1, 3, 8, 8)
    assert torch.equal(augment.move(x, middle, 4), x)


GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature"),
]


def marked(test):
    for mark in GPU:
        test = mark(test)
    return test


@marked
@pytest.mark.parametrize("how", [{}, {"graphs": True}, {"compile": True}, {"compile": True, "graphs": True}], ids=str)
@pytest.mark.parametrize("name", ["slices-mnist", "slices-cifar"])
def test_on_the_device(name, how, pictures, tmp_path):
    """The same training but for rounding, in every way of running a step."""
    one = experiment(name)
    config = one.Config(grid=False, epochs=2, batch=4, fraction=0.5, every=2, lr=1e-4)
    jobs = make_jobs(one, config, ["RR"], [0], pictures)
    assert run(jobs, tmp_path / "cpu") == []
    assert run(jobs, tmp_path / "cuda", device="cuda", **how) == []
    (cpu,), (cuda,) = (list(results(tmp_path / device).values()) for device in ("cpu", "cuda"))
    assert cuda["metrics"]["reverse_loss"] == pytest.approx(cpu["metrics"]["reverse_loss"], rel=0.05)
    for curve in ("train_loss", "regulariser"):
        assert cuda["curves"][curve] == pytest.approx(cpu["curves"][curve], rel=0.02)


@marked
def test_a_step_never_waits_for_the_device(pictures, tmp_path):
    one = experiment("slices-cifar")
    config = one.Config(grid=False, batch=4, fraction=0.5, every=2)
    (job,) = make_jobs(one, config, ["RR"], [0], pictures)
    task = one.data(config, 0, pictures)["A"]
    model = begin(job, job.stages[0], task, Store(tmp_path), "cuda")
    nets = Single(training(job, job.stages[0], task, model), TrainingOptions("cuda"))
    nets.train()
    (draws,) = nets.batches.draw(0)
    for step in range(5):
        torch.cuda.set_sync_debug_mode("error" if step > 1 else "default")
        try:
            nets.train_step(0, step, draws.at(step))
        finally:
            torch.cuda.set_sync_debug_mode("default")


# The figure


def test_every_slice_has_a_row():
    """Plain training, the exact loss, then the slices; a dot for each seed, where it was measured."""
    records = []
    for optimiser, (fraction, every), seed in product(("adam", "sgd"), [(0.125, 4), (0.0625, 1), (1.0, 1)], (0, 1)):
        config = {**SHORT.to_dict(), "optimiser": optimiser, "fraction": fraction, "every": every}
        for variant, weight in (("RR", 0.2), ("Std", None)) if fraction == 1 else (("RR", 0.2),):
            metrics = {"reverse_loss": fraction / every + seed, "test_accuracy": 1 - fraction}
            about = {"experiment": "slices", "config": config, "weight": weight}
            records.append(record(variant, seed, metrics, **about))
    figures = BITS.reporting.figures(runs(records))
    assert [title.rpartition(" (")[2] for title in figures] == ["optimiser = adam)"] * 2 + ["optimiser = sgd)"] * 2
    dots = {"reverse_loss": [[1.0, 2.0], [1.0, 2.0], [0.0625, 1.0625], [0.03125, 1.03125]]}
    dots["test_accuracy"] = [[0.0] * 2, [0.0] * 2, [0.9375] * 2, [0.875] * 2]
    for title, figure in figures.items():
        (axis,) = figure.axes
        assert [one.get_text() for one in axis.get_yticklabels()] == ["Std", "exact", "1/16", "1/8, 1 of 4"]
        found = [sorted(line.get_xdata()) for line in axis.lines if line.get_linestyle() == "None"]
        assert found == dots[title.split()[0]]

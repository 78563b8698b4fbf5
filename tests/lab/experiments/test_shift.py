"""Shift, in small: every stage trained, what is measured of it again by hand, its claims and figure."""

from dataclasses import replace
from statistics import mean

import pytest
import torch
from torch import nn

from racecar import Racecar
from racecar_lab.datasets import corruption
from racecar_lab.experiments import experiment
from racecar_lab.experiments.shift import Shift
from racecar_lab.experiments.shift_figures import SCORES, all_figures
from racecar_lab.experiments.shift_scores import CHANGES, SHIFTS
from racecar_lab.experiments.small_net import autoencoder, convolutions, small_net
from racecar_lab.report.claims import judge
from racecar_lab.report.groups import gather
from racecar_lab.report.verdicts import NOT_RUN
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from racecar_lab.running.starting import begin
from racecar_lab.training import rng
from tests.lab.experiments.few_labels_cases import with_pictures
from tests.lab.report.records import untrained
from tests.lab.tiny import results, run

SHIFT = experiment("shift")
TINY = SHIFT.Config(images=20, epochs=1, batch=8, tests=8)
NET = ("reverse", "layerwise", "input", "softmax", "energy", "mahalanobis")
OWN = ("autoencoder", "autoencoder_relative")


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    return with_pictures(tmp_path, monkeypatch, Shift)


def aurocs(*scores):
    return {f"auroc_{shift}_{score}" for shift in SHIFTS for score in scores}


def counted(known, strange):
    """AUROC by all pairs."""
    apart = strange[:, None] - known
    return float(((apart > 0).double() + 0.5 * (apart == 0)).mean())


def test_runs(pictures, tmp_path):
    variants = ("Std", "lRR")
    jobs = make_jobs(SHIFT, replace(TINY, norm="batch"), variants, [0], pictures)
    assert run(jobs, tmp_path / "out", "vmap") == []
    found = {(one["variant"], one["stage"]): one for one in results(tmp_path / "out").values()}
    assert set(found) == {*((name, "A") for name in variants), ("Std", "AE")}
    for (_, stage), one in found.items():
        wanted = {"test_accuracy", *aurocs(*NET)} if stage == "A" else {"reconstruction", *aurocs(*OWN)}
        assert set(one["metrics"]) == wanted
        assert all(0 <= value <= 1 for name, value in one["metrics"].items() if name != "reconstruction")
        severities = one["tables"]["AUROC by severity"]
        assert [(row["shift"], row["severity"]) for row in severities] == [
            *((shift, severity) for shift in CHANGES for severity in ("mild", "strong")), ("unseen", "")
        ]  # fmt: skip
        layers = convolutions(3, "batch") if stage == "A" else []
        assert [row["layer"] for row in one["tables"]["AUROC by layer"]] == 7 * layers


def test_what_is_measured(pictures, tmp_path):
    """The scores of a net and of the autoencoder again, picture by picture, and all pairs counted."""
    (job,) = make_jobs(SHIFT, TINY, ["Std"], [3], pictures)
    assert run([job], tmp_path / "out") == []
    store, tasks = Store(tmp_path / "out"), SHIFT.data(TINY, 3, pictures)
    x, noise = tasks["A"].test.x, rng.generator("shift", 3, "noise")
    sets = {"noise": [corruption.noise(x, sd, noise) for sd in (0.1, 0.3)], "unseen": [tasks["B"].test.x]}
    net, coder = small_net("digits", 3, "none", "torch").eval(), autoencoder("digits", 3, "none", "torch").eval()
    net.load_state_dict(store.weights(job.ids["A"]))
    coder.load_state_dict(store.weights(job.ids["AE"]))
    cars = {mode: Racecar(net, x[:1], mode=mode, **SHIFT.reverse(TINY)) for mode in ("full", "layerwise")}

    @torch.no_grad()
    def scores(pictures):
        rows = []
        for one in pictures.split(1):
            terms = {}
            for mode, rr in cars.items():
                rr(one)
                terms[mode] = [float(term) for term in rr.terms.values()]
            logits, error = net(one)[0].double(), (one - coder(one)).double().square().sum()
            rows.append([
                mean(terms["full"]), mean(terms["layerwise"]), terms["full"][0], -float(logits.softmax(0).max()),
                -float(logits.exp().sum().log()), float(error), float(error / one.double().square().sum()),
            ])  # fmt: skip
        return torch.tensor(rows, dtype=torch.float64).t()

    known = scores(x)
    found = {**store.get(job.ids["A"]).metrics, **store.get(job.ids["AE"]).metrics}
    names = [name for name in (*NET, *OWN) if name != "mahalanobis"]
    for shift, some in sets.items():
        for i, name in enumerate(names):
            wanted = mean(counted(known[i], scores(one)[i]) for one in some)
            assert found[f"auroc_{shift}_{name}"] == pytest.approx(wanted, abs=0.01)  # rounding may turn a pair


def test_the_autoencoder_is_trained(pictures, tmp_path):
    """By hand, and by either engine: at its own learning rate, to rebuild the known classes."""
    config = replace(TINY, autoencoder_lr=2e-3, epochs=2)
    (job,) = make_jobs(SHIFT, config, ["Std"], [0], pictures)
    for engine in ("here", "vmap"):
        assert run([job], tmp_path / engine, engine) == []
    train = SHIFT.data(config, 0, pictures)["A"].train
    model = begin(job, job.stages[1], None, Store(tmp_path / "here"), "cpu").train()
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for chosen in [one for epoch in range(2) for one in rng.order(20, 8, 0, "AE", epoch)]:
        optimiser.zero_grad()
        (model(train.x[chosen]) - train.x[chosen]).square().mean().backward()
        optimiser.step()
    for engine in ("here", "vmap"):
        found = Store(tmp_path / engine).weights(job.ids["AE"])
        for name, value in model.named_parameters():
            torch.testing.assert_close(found[name], value.detach(), rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("task", ["digits", "cifar"])
@pytest.mark.parametrize("depth", [3, 6])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_the_autoencoder_is_as_large_as_the_net(task, depth, norm):
    net, coder = (make(task, depth, norm, "he") for make in (small_net, autoencoder))
    sizes = [sum(one.numel() for one in model.parameters()) for model in (net, coder)]
    assert 0.85 < sizes[1] / sizes[0] < 1.05
    widths = [(one.in_channels, one.out_channels) for one in coder.modules() if isinstance(one, nn.Conv2d)]
    assert len(widths) == 2 * depth
    assert widths[::-1] == [(after, before) for before, after in widths]  # mirrored
    x = torch.rand(2, *((3, 32, 32) if task == "cifar" else (1, 28, 28)))
    assert coder(x).shape == x.shape


def test_claims_find_both_sides(pictures):
    """lRR's layer-wise error against five other scores of Std's nets, in every shift; each is measured."""
    jobs = make_jobs(SHIFT, SHIFT.Config(), SHIFT.variants, range(5), pictures)
    runs = untrained(jobs, aurocs(*NET, *OWN))
    found = judge(SHIFT.claims, gather(runs))
    assert len(found) == 5 * len(SHIFTS) == len({one.claim.text for one in found})
    for one in found:
        assert one.verdict != NOT_RUN
        ours, other = one.claim.metrics
        assert (one.sides[0].variant, one.sides[0].stage, ours.split("_")[2]) == ("lRR", "A", "layerwise")
        assert ours.split("_")[1] == other.split("_")[1]
        assert one.sides[1].variant == "Std"
        assert (one.sides[1].stage == "AE") is ("autoencoder" in other)


def test_the_figure(pictures):
    """A panel for each shift; in each row the means of all variants that have the score."""
    jobs = make_jobs(SHIFT, SHIFT.Config(), ("Std", "RR", "lRR"), range(3), pictures)
    runs = []
    for one in untrained(jobs, aurocs(*NET, *OWN)):
        own = OWN if one.stage == "AE" else NET
        one.record["metrics"] = {name: value for name, value in one.metrics.items() if name.endswith(own)}
        runs.append(one)
    (figure,) = all_figures(runs).values()
    assert [axis.get_title() for axis in figure.axes] == list(SHIFTS.values())
    for axis in figure.axes:
        assert [label.get_text() for label in axis.get_yticklabels()] == list(SCORES.values())
        marks = [line for line in axis.lines if not line.get_label().startswith("_")]
        places = {(line.get_label(), round(line.get_ydata()[0])): line.get_xdata()[0] for line in marks}
        assert len(places) == 3 * len(NET) + len(OWN)
        assert places["RR", 0] == pytest.approx(0.61)
        assert places["autoencoder", len(NET)] == pytest.approx(0.51)

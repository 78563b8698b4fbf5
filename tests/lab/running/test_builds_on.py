"""An experiment that builds on another: that one's networks are trained once, first, and for both."""

from dataclasses import replace

import pytest
import torch

from racecar_lab.experiments.smoke import Smoke
from racecar_lab.running.jobs import with_earlier
from racecar_lab.running.results import Store
from tests.lab.experiments.smoke_cases import autoencoder_jobs, jobs, small_data
from tests.lab.tiny import plain, results, run

ONE = ("AB1-decoder", "A")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with small_data(tmp_path_factory.mktemp("data")) as found:
        yield found


def short(folder, variants=("RR",), **config):
    """One stage of each autoencoder is enough."""
    made = autoencoder_jobs(folder, variants, **config)
    return [replace(job, stages=tuple(stage for stage in job.stages if stage.name == ONE[0])) for job in made]


def test_what_is_there_is_not_trained_again(folder, tmp_path):
    """And it is the same, bit for bit, whichever comes first."""
    assert run(jobs(folder, ("RR",)), tmp_path / "both") == []
    (first,) = (tmp_path / "both" / "records").iterdir()
    kept = first.read_bytes()
    assert run(short(folder), tmp_path / "both") == []
    assert first.read_bytes() == kept
    assert run(short(folder), tmp_path / "alone") == []
    assert plain(results(tmp_path / "both")) == plain(results(tmp_path / "alone"))
    runs = {one.record["experiment"]: one for one in Store(tmp_path / "alone").runs()}
    assert {name: one.stage for name, one in runs.items()} == {"smoke": "A", "smoke-autoencoder": ONE[0]}
    assert runs["smoke-autoencoder"].record["parent"] == runs["smoke"].id == first.stem
    assert "autoencoder_lr" not in runs["smoke"].config
    assert runs["smoke"].record["tuned"] == {}


def test_several_share_one(folder, tmp_path):
    some = [job for lr in (1e-3, 2e-3) for job in short(folder, autoencoder_lr=lr)]
    assert [job.experiment.name for job in with_earlier(some)] == ["smoke", *["smoke-autoencoder"] * 2]
    assert run(some, tmp_path) == []
    assert sorted(one.stage for one in Store(tmp_path).runs()) == ["A", ONE[0], ONE[0]]


def test_one_that_fails(folder, tmp_path, monkeypatch):
    """Those that build on it say so; the others are done."""
    first = Smoke.measure

    def measure(self, config, trained):
        if trained.variant == "RR":
            raise RuntimeError("no")
        return first(self, config, trained)

    monkeypatch.setattr(Smoke, "measure", measure)
    failures = run(short(folder, ("RR", "Std")), tmp_path)
    assert [one.message for one in failures] == ["RuntimeError: no", f"it starts from {failures[0].job}, which failed"]
    assert failures[1].job.startswith("smoke-autoencoder RR")
    assert {(one.variant, one.stage) for one in Store(tmp_path).runs()} == {("Std", "A"), ("Std", ONE[0])}


def test_one_that_diverges(folder, tmp_path):
    """Then nothing starts from it, and the records say why."""
    assert run(short(folder, ("Std",), lr=1e30), tmp_path) == []
    notes = {one.stage: one.record["note"] for one in Store(tmp_path).runs() if not one.finished}
    assert set(notes) == set(ONE)
    assert "A, which it starts from, diverged" in notes[ONE[0]]


def test_its_weights_are_in_the_decoder(folder, tmp_path):
    """Before the first step: an epoch with a learning rate of nearly nothing."""
    assert run(short(folder, autoencoder_lr=1e-12), tmp_path) == []
    store = Store(tmp_path)
    weights = {one.stage: store.weights(one.id) for one in store.runs()}
    taken, filled = weights["A"]["generator.0.weight"], weights[ONE[0]]["autoencoder.1.0.weight"]
    torch.testing.assert_close(filled, taken)

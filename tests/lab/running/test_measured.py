"""What a training leaves in the store: every field that a record needs, also where a number is none."""

import re

import pytest

from racecar_lab.experiments import experiment
from racecar_lab.running import results
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.record import FIELDS
from racecar_lab.running.record_writer import Maker
from racecar_lab.running.results import Store
from racecar_lab.running.work import do
from racecar_lab.training.spec import TrainingOptions


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "out")


@pytest.fixture
def measured(store, monkeypatch):
    """Train peaks for one epoch and measure what is given; the record."""
    one = experiment("peaks")
    (job,) = make_jobs(one, one.Config(epochs=1, nets=("linear",)), ["Std"], [0], None)

    def measure(metrics, tables):
        monkeypatch.setattr(
            type(one), "measure", lambda self, config, trained: results_of(metrics, tables, trained.history)
        )
        do(job, store, TrainingOptions(), Maker("test", "here"))
        return store.get(job.ids["A"])

    return measure


def results_of(metrics, tables, arrays):
    from racecar_lab.experiment import Measured

    return Measured(metrics, tables, arrays)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_metric_that_is_no_number_does_not_lose_the_run(measured, store, value):
    """It is null in the record, which says so; everything else is kept, and JSON stays JSON."""
    run = measured({"good": 0.5, "bad": value}, {"rows": [{"a": value, "b": 1.0}], "sweep": {"5": [[value, 2.0]]}})
    assert run.finished
    assert run.record["metrics"] == {"good": 0.5, "bad": None}
    assert run.record["tables"] == {"rows": [{"a": None, "b": 1.0}], "sweep": {"5": [[None, 2.0]]}}
    assert "bad" in run.record["note"]
    assert run.metrics == {"good": 0.5}  # what is missing is not there, so that nobody takes its mean
    text = (store.folder / "records" / f"{run.id}.json").read_text()
    assert not {"NaN", "Infinity"} & set(re.findall(r"\w+", text))
    assert store.weights(run.id)
    assert not list((store.folder / "checkpoints").glob("*"))


def test_needed_fields_are_in_every_record(measured):
    run = measured({"good": 1.0}, {})
    assert set(FIELDS) <= set(run.record)
    assert run.record["format"] == results.FORMAT
    assert run.record["note"] == ""

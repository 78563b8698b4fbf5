"""What there is to do: all combinations once, each with its weight and settings."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from racecar_lab.experiments import experiment
from racecar_lab.running import jobs
from racecar_lab.running.job import tune
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.results import Store
from tests.lab.report.records import record
from tests.lab.running.quick_configs import QUICK

LINEAR = replace(QUICK["peaks"], nets=("linear",))


def test_all_combinations():
    one = experiment("peaks")
    config = one.Config(nets=("linear", "two"))
    jobs = make_jobs(one, config, ["Std", "Ort", "RR"], [0, 5], None, weights={"RR": (1e-6, 1e-7)})
    found = [(*job.config.nets, job.variant, job.weight, job.seed) for job in jobs]
    values = {"Std": [None], "Ort": [0.1], "RR": [1e-6, 1e-7]}
    assert sorted(found, key=str) == sorted(
        ((net, v, c, s) for net in config.nets for v in values for c in values[v] for s in (0, 5)), key=str
    )
    assert {job.base for job in jobs} == {replace(config, nets=("linear",)), replace(config, nets=("two",))}


@pytest.mark.parametrize(
    "more",
    [{"variants": ["RR", "RR"]}, {"seeds": [0, 0]}, {"weights": {"RR": [0.5, 0.5]}}],
    ids=["variants", "seeds", "weights"],
)
def test_nothing_is_done_or_counted_twice(more):
    given = {"variants": ["RR"], "seeds": [0], "folder": None, **more}
    assert len(make_jobs(experiment("peaks"), LINEAR, **given)) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_weights_that_make_no_sense(value):
    with pytest.raises(ValueError, match="RR"):
        make_jobs(experiment("peaks"), LINEAR, ["RR"], [0], None, weights={"RR": [value]})


def test_weight():
    """The user's own before that of a search, before that of the experiment; Std has none."""
    one = experiment("peaks")

    def of(variant, **more):
        (job,) = make_jobs(one, LINEAR, [variant], [0], None, **more)
        return job.weight

    assert of("Std") is None
    assert of("Std", weights={"Std": [3.0]}, tuned={"Std": {"weight": 2.0}}) is None
    assert of("RR") == LINEAR.weight / 2 == 5e-7  # half the authors' λ
    assert of("Ort") == LINEAR.beta == 0.1
    assert of("RR", tuned={"RR": {"weight": 2.0}}) == 2.0
    assert of("RR", tuned={"RR": {"weight": 0.0}}) == 0.0
    assert of("RR", tuned={"RR": {"weight": 2.0}}, weights={"RR": [3.0]}) == 3.0
    assert of("RR", weights={"Ort": [3.0]}) == 5e-7


def test_tuned():
    """A variant's own settings are in its configuration and name, the common ones in its base."""
    one = experiment("peaks")
    tuned = {"RR": {"lr": 0.5, "weight": 2.0}, "Std": {"lr": 0.25}}
    std, rr, ort = make_jobs(one, LINEAR, ["Std", "RR", "Ort"], [0], None, tuned=tuned)
    assert [job.config.lr for job in (std, rr, ort)] == [0.25, 0.5, LINEAR.lr]
    assert {job.base for job in (std, rr, ort)} == {LINEAR}
    assert rr.tuned == tuned["RR"]
    assert ort.tuned == {}
    assert tune(LINEAR, tuned["RR"]) == replace(LINEAR, lr=0.5)


def test_stages_and_what_is_there(tmp_path):
    one, store = experiment("information"), Store(tmp_path)
    std, rr = make_jobs(one, QUICK["information"], ["Std", "RR"], [3], None)
    assert [stage.name for stage in std.stages] == ["A", "AA", "AB", "B"]
    assert [stage.name for stage in rr.stages] == ["A", "AA", "AB"]
    assert list(std.ids) == ["A", "AA", "AB", "B"]
    assert [std.parent(stage) for stage in std.stages] == [None, std.ids["A"], std.ids["A"], None]
    assert std.unfinished(store) == list(std.stages)
    store.write({**record(stage="AA"), "id": std.ids["AA"]}, {}, {})
    assert [stage.name for stage in std.unfinished(store)] == ["A", "AB", "B"]
    assert rr.unfinished(store) == list(rr.stages)
    assert std.label == "information Std seed 3"
    assert rr.label == f"information RR {QUICK['information'].weight:g} seed 3"


def test_unknown_variant():
    known = "Std, Ort, OrtB, Pre, RR, lRR, RR1, Lin, WD, Drop"
    with pytest.raises(ValueError, match=f"no variant 'rr'; the variants are: {known}"):
        make_jobs(experiment("peaks"), LINEAR, ["rr"], [0], Path())


def test_more_than_anybody_can_mean(monkeypatch):
    """Refused before they are all there: of these seeds there is no end."""
    monkeypatch.setattr(jobs, "MOST", 50)
    assert len(make_jobs(experiment("peaks"), QUICK["peaks"], ["Std"], range(50), None)) == 50
    with pytest.raises(ValueError, match="more than 50 trainings at once"):
        make_jobs(experiment("peaks"), QUICK["peaks"], ["Std"], count(), None)


def test_planning_is_shown(monkeypatch, capsys):
    monkeypatch.setattr("racecar.support.progress.INTERVAL", 0)
    make_jobs(experiment("peaks"), QUICK["peaks"], ["Std"], range(3), None)
    assert capsys.readouterr().err.splitlines() == [f"planning: {i} jobs" for i in (1, 2, 3)]

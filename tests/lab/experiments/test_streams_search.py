"""The settings that a search of the streams tries, also beyond the edge, and the seeds of search and judgement."""

import math
from dataclasses import replace

import pytest

from racecar_lab.experiments import experiment
from racecar_lab.experiments.streams.config import CHOOSING, StreamsConfig
from racecar_lab.running.engines.streams import check
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.search import trials
from racecar_lab.streams import METHODS

STREAMS = experiment("streams")


def run_search(name, score):
    """All settings that a search tries until it adds no more, and the best of them."""
    rows, new = [], STREAMS.search.candidates(name, "adam")
    while new:
        rows += [{"weight": None, **setting, "score": score(setting)} for setting in new]
        best = max(rows, key=lambda row: row["score"])
        new = STREAMS.search.beyond({**{k: v for k, v in best.items() if v is not None}, "tried": rows})
    return rows, best


def peak(**at):
    """A score that is largest at one setting and falls with the distance from it in decades."""
    return lambda setting: -sum(abs(math.log10((setting[name] or 1e-9) / value)) for name, value in at.items())


@pytest.mark.parametrize(
    "name, at",
    [
        ("linear", {"lr": 1e-3, "weight": 1.0}),
        ("linear", {"lr": 1e-3, "weight": 100.0}),
        ("linear", {"lr": 1e-5, "weight": 1e-3}),
        ("Std", {"lr": 1e-1}),
        ("Shrink & Perturb", {"lr": 1e-3, "weight": 3e-3, "second": 1e-1}),
        ("ReDo", {"lr": 3e-4, "weight": 0.1, "second": 1e2}),
    ],
)
def test_the_search_goes_on_beyond_the_edge(name, at):
    """The search ends with the best setting inside the tried ones, and tries no setting twice."""
    rows, best = run_search(name, peak(**at))
    points = [(row["lr"], row["weight"], row["second"]) for row in rows]
    assert len(set(points)) == len(points) <= STREAMS.search.most
    for axis, value in at.items():
        assert best[axis] == pytest.approx(value, rel=0.2 if name == "Std" else 1e-6)
        values = {row[axis] for row in rows}
        assert min(values) < best[axis] < max(values)
    inside = name == "linear" and at == {"lr": 1e-3, "weight": 1.0}
    assert (len(rows) == 20) is inside


def test_zero_is_an_end():
    def score(setting):
        return -setting["weight"] - abs(setting["lr"] - 1e-3) - abs(setting["second"] - 2e3)

    rows, best = run_search("ReDo", score)
    assert best["weight"] == 0
    assert len(rows) == 20 + 4  # a shorter period, of which 1000 was the shortest, for four rates


OTHER = {"stream": "labels", "net": "mlp6", "norm": "layer", "tasks": 3, "passes": 2, "images": 100, "tests": 10,
         "second": 2.0, "lr": 0.5, "shipped": True, "batch": 7, "optimiser": "sgd", "valid": 0.25}  # fmt: skip


def test_every_setting_counts():
    """Runs that differ in any setting, the method, the weight or the seed have different ids."""
    config = StreamsConfig()
    jobs = [
        make_jobs(STREAMS, replace(config, **{name: value}), ["linear"], [0], None) for name, value in OTHER.items()
    ]
    jobs += [make_jobs(STREAMS, config, list(METHODS), range(2), None, weights={"linear": [1.0, 2.0]})]
    ids = [job.ids["A"] for group in jobs for job in group]
    assert len(set(ids)) == len(ids) == len(OTHER) + 2 * (len(METHODS) + 1)
    assert make_jobs(STREAMS, config, ["linear"], [0], None)[0].ids["A"] in ids


def test_the_search_uses_other_seeds_than_judged_runs():
    config = StreamsConfig(stream="labels")
    chosen = trials(STREAMS, STREAMS.search_for(config), config, ["Std", "linear"], None)
    judged = make_jobs(STREAMS, config, ["Std", "linear"], range(STREAMS.seeds), None)
    assert {job.seed for job in chosen} == {CHOOSING, CHOOSING + 1, CHOOSING + 2}
    assert len(chosen) == 2 * 20 * 3
    check([*chosen, *judged])
    for wrong in (
        make_jobs(STREAMS, config, ["Std"], [CHOOSING], None),
        make_jobs(STREAMS, config, ["Std"], [0], None, purpose="search"),
    ):
        with pytest.raises(ValueError, match=f"seeds from {CHOOSING} on are for a search"):
            check(wrong)

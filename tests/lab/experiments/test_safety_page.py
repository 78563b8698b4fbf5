"""The tables of the safety map and its figure, from made-up records."""

import random

import pandas
import pytest

from racecar_lab.experiments import experiment
from racecar_lab.experiments.safety.design import CONTEXTS, LAMBDAS, LOSSES, PLAIN, covering, fields_of
from racecar_lab.experiments.safety.map_figure import all_figures
from racecar_lab.experiments.safety.rule import judge, nets_of
from racecar_lab.experiments.safety.tables import sentences_and_tables
from racecar_lab.running.run import Run
from tests.lab.report.records import record

SAFETY = experiment("safety")
PLANTED = "reverse:anchored:layerwise", 0.03
KILLER = "both:relative:layerwise"
VARIANTS = {"none": "Std", "full": "RR", "layerwise": "lRR", "input": "RR1"}


def map_records(seeds=range(5), best=PLANTED, made_up=LOSSES):
    """A made-up map: λ = 1 kills nets without norm, one loss kills all from λ = 0.1 on, one setting is best."""
    rng = random.Random(0)
    usual = SAFETY.Config(design="one").to_dict()
    noise = {seed: rng.gauss(0, 0.02) for seed in seeds}

    def one(context, seed, setting=("", 0.0)):
        loss, place = setting
        killed = (place == 1 and context.norm == "none") or (loss == KILLER and place >= 0.1)
        probe = 0.7 + noise[seed] + rng.gauss(0, 0.01) + (0.05 if setting == best else 0)
        metrics = {"source_accuracy": 0.21 if killed else 0.97, "dead": float(killed)}
        config = {**usual, **context._asdict(), **(fields_of(setting) if loss else PLAIN)}
        lost = killed and context.depth == 3
        return record(
            VARIANTS[config["mode"]], seed, {} if lost else metrics | {"probe_10": 0.2 if killed else probe},
            experiment="safety", weight=config["weight"] if loss else None, config=config,
            status="diverged" if lost else "finished", made={"finished": "2026-11-17T07:00:00Z"},
        )  # fmt: skip

    nets = [one(context, seed) for context in CONTEXTS for seed in seeds]
    for setting in ((loss, place) for loss in made_up for place in LAMBDAS):
        nets += [one(context, seed, setting) for context in covering(setting) for seed in seeds]
    return nets


def verdict_of(records):
    return judge(nets_of(map(Run, records)))


@pytest.fixture(scope="module")
def records():
    return map_records(range(1))


def test_tables():
    """The rows of the settings that were run afresh; those that kill, and where, by hand."""
    fresh = [one for one in map_records(range(100, 102), made_up=[KILLER]) if one["weight"] in (None, 0.1)]
    _, tables = sentences_and_tables([Run(one) for one in [*map_records(range(1), made_up=[KILLER]), *fresh]])
    best, losses, confirmed = (
        [{head: cell.text for head, cell in row.items()} for row in table.rows] for table in tables
    )
    assert {row["λ"] for row in best} == {"0.001", "0.003", "0.01"}
    (loss,) = losses
    assert (loss["safe up to λ"], loss["kills from λ"]) == ("0.01", "0.1")
    assert loss["there"].startswith(
        "9 of 9 nets killed; norm batch, group, none; start he, orthogonal, torch; depth 3, 6, 12"
    )
    (row,) = confirmed
    assert (row["killed"], row["of nets"], row["source, batch"]) == ("18", "18", "−76.0")


def test_nets(records):
    for loss in (LOSSES[0], LOSSES[-1]):  # of all layers, and without the classifier
        nets = nets_of([Run(map_records(range(1), made_up=[loss])[-1])])
        assert (nets.loss[0], nets.place[0]) == (loss, 1.0)
    nets = nets_of(map(Run, records))
    assert len(nets) == len(records)
    assert nets.source.isna().any()
    assert nets.dead[nets.source.isna()].all()
    longer = {**records[0], "config": {**records[0]["config"], "epochs": 7}}
    pandas.testing.assert_frame_equal(nets_of(map(Run, [longer, *records])), nets)


def test_a_figure_of_little():
    few = [one for one in map_records(range(1), made_up=LOSSES[:1]) if one["weight"] in (None, 0.1)]
    for figure in all_figures(verdict_of(few)).values():
        (axis,) = figure.axes
        assert len(axis.texts) == 1
        assert not axis.patches
    assert all_figures(verdict_of([])) == {}

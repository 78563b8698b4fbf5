"""What the streams claim, choose and tell, tried on made-up data."""

import json
import math
import random

import pytest
import torch

from racecar_lab.experiments import experiment
from racecar_lab.experiments.streams.claims import CELLS, CLAIMS, QUESTIONS
from racecar_lab.experiments.streams.conditions import by_conditions
from racecar_lab.experiments.streams.config import CHOOSING, StreamsConfig
from racecar_lab.experiments.streams.figures import DRAWN
from racecar_lab.experiments.streams.rule import answers, overall_answer
from racecar_lab.experiments.streams.transfer import area, scores_of_runs, transfer
from racecar_lab.report.section import findings_of, section
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.streams import METHODS
from tests.lab.report.records import record

STREAMS = experiment("streams")
CELL = CELLS[0]


def made_up(values, seeds=20, tuned=None, first_seed=0, **fields):
    """Method → (mean, spread) of what is judged: a run for each seed."""
    config = StreamsConfig(**{**CELL._asdict(), **fields})
    runs = []
    for name, (mean, spread, *first) in values.items():
        for seed in range(first_seed, first_seed + seeds):
            value = mean + random.Random(f"{name} {seed}").gauss(0, spread)
            metrics = {config.protocol.metric: value, f"first_{config.judged_by}": first[0] if first else 0.5}
            coefficient = (tuned or {}).get("coefficient") if METHODS[name].strengths else None
            runs.append(Run(record(name, seed, metrics, experiment="streams", config=config.to_dict(),
                                   coefficient=coefficient, tuned=tuned or {"lr": 1e-3, "second": 0.0},
                                   purpose="search" if tuned else "")))  # fmt: skip
    return runs


USUAL = dict.fromkeys(METHODS, (0.5, 0.01))
QUESTION = {one.text: one for one in QUESTIONS}


def answered(values, seeds=20, text="Is linear ahead of every regulariser?"):
    found = answers(findings_of(STREAMS, made_up({**USUAL, **values}, seeds)))
    assert all(one == "not run" for cell, one in found[QUESTION[text]].items() if cell != CELL)
    assert overall_answer(found[QUESTION[text]]) == found[QUESTION[text]].get(CELL)
    return overall_answer(found[QUESTION[text]])


def test_a_claim_that_holds_one_that_does_not_and_a_tie():
    assert answered({"linear": (0.6, 0.01)}) == "yes"
    assert answered({"linear": (0.6, 0.01), "Spectral": (0.7, 0.01)}) == "no"
    assert answered({"linear": (0.6, 0.01), "Spectral": (0.6, 0.01)}) == "open"
    assert answered({"linear": (0.6, 0.01)}, seeds=19) == "not run"  # too few
    eighth = "Will an eighth of the batch do?"
    assert answered({"linear": (0.6, 0.003), "linear 1/8": (0.605, 0.003)}, text=eighth) == "yes"
    assert answered({"linear": (0.6, 0.003), "linear 1/8": (0.55, 0.003)}, text=eighth) == "no"
    assert answered({"linear": (0.6, 0.003), "linear 1/8": (0.58, 0.003)}, text=eighth) == "open"


def test_cells_with_other_methods():
    """A stream and net on which a method was not run has claims that were not run, beside others that were."""
    more = made_up({"Std": (0.1, 0.01), "linear": (0.6, 0.01)}, stream="pairs", net="kumar", norm="batch")
    found = answers(findings_of(STREAMS, [*made_up({**USUAL, "linear": (0.6, 0.01)}), *more]))
    first, second = QUESTIONS[:2]
    pairs = CELLS[-1]
    assert (found[first][CELL], found[first][pairs], overall_answer(found[first])) == ("yes", "yes", "yes")
    assert (found[second][CELL], found[second][pairs], overall_answer(found[second])) == ("yes", "not run", "yes")


def test_holm_over_all_claims():
    """Those that were not run count: the smallest p-value is multiplied by the number of all."""
    findings = findings_of(STREAMS, made_up({**USUAL, "linear": (0.505, 0.01)}))
    assert len(findings) == len(STREAMS.claims) == sum(map(len, CLAIMS.values()))
    ps = [one.p for one in findings if one.p is not None]
    smallest = next(one for one in findings if one.p == min(ps))
    assert smallest.p_holm == pytest.approx(min(1.0, len(findings) * min(ps)))


def test_claims_can_be_judged():
    """Of methods, streams and nets that there are, on nets for which each method is meant; each once."""
    assert len({one.text for one in STREAMS.claims}) == len(STREAMS.claims) > 100
    for one in STREAMS.claims:
        assert {one.better, one.than} <= set(METHODS)
        assert StreamsConfig(**one.where).protocol.metric == one.metric
        assert one.minimum_seeds == STREAMS.seeds == 20
        if one.where["norm"] != "none":
            assert METHODS[one.better].norm == METHODS[one.than].norm == "none"


def test_the_page_says_it():
    """The answers first; a table of every method on each stream and net, then the claims."""
    runs = made_up({**USUAL, "linear": (0.6, 0.01), "linear + CReLU": (0.65, 0.01)})
    made = section("streams", "in-streams", runs, STREAMS)
    assert "Is linear ahead of every regulariser? Yes." in made.finding
    assert "Will an eighth of the batch do? No." in made.finding
    assert "published" not in made.problem
    assert any("Kumar et al. (2023) have 500 tasks, here 200" in note for note in made.notes)
    rows = {row[0].text: row for row in made.tables[1].rows}
    assert list(rows) == list(METHODS)
    assert rows["linear"][[c.title for c in made.tables[1].columns].index("while learning, %")].value == (
        pytest.approx(60, abs=1)
    )


def test_settings_that_no_search_chose():
    """Are shown, and nothing is judged by them; not even shown beside those that a search chose."""
    plain = made_up({"linear": (0.9, 0.01), "Std": (0.1, 0.01)})
    for run in plain:
        run.record["tuned"] = {}
    notes, tables = STREAMS.told(plain)
    assert "nothing is judged" in notes[0]
    assert [row[0].text for row in tables[0].rows] == ["Std", "linear"]
    both = [*made_up({"linear": (0.5, 0.01), "Std": (0.6, 0.01)}), *plain]
    notes, tables = STREAMS.told(both)
    assert "Does linear keep nets learning? No." in notes[0]
    assert [row[3].text for row in tables[1].rows] == ["20", "20"]


class Kept:
    """The arrays of made-up runs: accuracy falls from 1 by a hundredth a task, and by a little more with the seed."""

    def arrays(self, run):
        return {"online": 1 - torch.arange(50) / 100 - run.seed / 1000}


def test_accuracy_over_the_tasks():
    """Each point the mean over two of fifty tasks and over the nets; a line for each method that is drawn."""
    runs = [Run(run.record, Kept()) for run in made_up({**USUAL, "linear": (0.6, 0.01)}, 3)]
    figures = STREAMS.figures(runs)
    (axis,) = figures["Accuracy over the tasks: means over the nets and their 95 % intervals"].axes
    assert {line.get_label() for line in axis.get_lines()} == set(DRAWN)
    for line in axis.get_lines():
        assert list(line.get_xdata()) == [2.0 * (i + 1) for i in range(25)]
        assert list(line.get_ydata()) == pytest.approx(
            [100 * (1 - (2 * i + 0.5) / 100 - 0.001) for i in range(25)], rel=1e-5
        )
    assert len(figures) == 1  # three seeds are too few for a claim
    drawn = STREAMS.figures([Run(run.record, Kept()) for run in made_up(USUAL)])
    assert [title.partition(":")[0] for title in drawn] == ["Accuracy over the tasks", f"The claims on {CELL}"]


# What it tells of λ


def grid(best, cell, first=0.5):
    """Of two strengths, the score of each; and Std beside."""
    runs = []
    for strength, value in best.items():
        tuned = {"lr": 1e-3, "second": 0.0, "coefficient": strength}
        at = first[strength] if isinstance(first, dict) else first
        runs += made_up({"linear": (value, 0.0, at)}, 3, tuned, CHOOSING, **cell)
    for lr in (1e-4, 1e-2):
        runs += made_up({"Std": (0.1, 0.0, 0.5)}, 3, {"lr": lr, "second": 0.0}, CHOOSING, **cell)
    return runs


def tried(runs):
    return {conditions: scores_of_runs(conditions, compared) for conditions, compared in by_conditions(runs).items()}


DIGITS, LABELS = {}, {"stream": "labels"}


def test_one_setting_for_all():
    """The smallest largest loss to each cell's own best, of those that cost the first task no more than two points."""
    runs = [*grid({1.0: 0.8, 3.0: 0.79}, DIGITS), *grid({1.0: 0.6, 3.0: 0.62}, LABELS)]
    one = transfer(tried(runs), "linear")
    assert one.setting == (1e-3, 3.0, 0.0)
    assert sorted(one.losses.values()) == pytest.approx([0.0, 0.01])
    assert list(one.first.values()) == pytest.approx([0.0, 0.0])
    assert one.holds
    slow = [*grid({1.0: 0.8, 3.0: 0.79}, DIGITS, {1.0: 0.49, 3.0: 0.4}), *grid({1.0: 0.55, 3.0: 0.62}, LABELS)]
    one = transfer(tried(slow), "linear")  # the other setting costs the first task ten points
    assert one.setting == (1e-3, 1.0, 0.0)
    assert max(one.losses.values()) == pytest.approx(0.07)
    assert not one.holds
    assert transfer(tried(runs), "linear decoupled") is None


def test_published_searches_lie_beside_the_records(tmp_path):
    """Their page says what that of the search said."""
    config = {**StreamsConfig(valid=0.0).to_dict(), **CELL._asdict()}
    rows = [
        {"lr": 1e-3, "coefficient": one, "second": 0.0, "score": one / 10, "first_online_accuracy": 0.5}
        for one in (1, 3)
    ]
    line = {"name": "one", "experiment": "streams", "config": config, "variants": {"linear": {"tried": rows}}}
    (tmp_path / "tuned.jsonl").write_text(json.dumps(line) + "\n")
    runs = [Run(run.record, Store(tmp_path)) for run in made_up({"linear": (0.6, 0.01), "Std": (0.5, 0.01)})]
    _, tables = STREAMS.told(runs)
    assert [one.caption for one in tables[-2:]] == [
        f"{CELL}: what the search found, mean over its seeds", "Does one λ do for all streams and nets?"
    ]  # fmt: skip
    (row,) = tables[-2].rows
    assert [cell.text for cell in row[:4]] == ["linear", "2", "lr 0.001, strength 3", "30.0"]
    assert len(STREAMS.told(made_up({"linear": (0.6, 0.01)}))[1]) == len(tables) - 2


def test_the_area_over_learning_rates():
    """Of the best at each rate, by hand: Adam's range is 1e-4 to 3e-3, 1.477 decades."""
    found = {(1e-4, 1.0, 0.0): 0.2, (1e-4, 3.0, 0.0): 0.4, (1e-3, 1.0, 0.0): 0.8, (3e-3, 1.0, 0.0): 0.6}
    third = math.log10(3)
    assert area(found, "adam") == pytest.approx((0.6 + 0.7 * third) / (1 + third))
    assert area({**found, (1e-5, 1.0, 0.0): 0.0, (3e-2, 1.0, 0.0): 0.0}, "adam") == pytest.approx(
        (0.6 + 0.7 * third) / (1 + third)
    )
    del found[3e-3, 1.0, 0.0]
    assert area(found, "adam") is None

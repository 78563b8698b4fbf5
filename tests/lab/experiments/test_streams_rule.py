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
from racecar_lab.report.section import findings_of
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.streams import METHODS
from tests.lab.report.records import record

STREAMS = experiment("streams")
CELL = CELLS[0]


def made_up(values, seeds=20, tuned=None, first_seed=0, **fields):
    """Runs with made-up accuracies, for every seed of each method.

    Args:
        values: method → mean and standard deviation of the judged metric, and, if wanted, accuracy on the first task.
    """
    config = StreamsConfig(**{**CELL._asdict(), **fields})
    runs = []
    for name, (mean, spread, *first) in values.items():
        for seed in range(first_seed, first_seed + seeds):
            value = mean + random.Random(f"{name} {seed}").gauss(0, spread)
            metrics = {config.protocol.metric: value, f"first_{config.judged_by}": first[0] if first else 0.5}
            weight = (tuned or {}).get("weight") if METHODS[name].weights else None
            runs.append(Run(record(name, seed, metrics, experiment="streams", config=config.to_dict(),
                                   weight=weight, tuned=tuned or {"lr": 1e-3, "second": 0.0},
                                   purpose="search" if tuned else "")))  # fmt: skip
    return runs


USUAL = dict.fromkeys(METHODS, (0.5, 0.01))
QUESTION = {question.text: question for question in QUESTIONS}


def answer_to(values, seeds=20, text="Is linear ahead of every regulariser?"):
    """The answer to a question from made-up runs on one stream and net; methods without values have the usual ones."""
    by_cell = answers(findings_of(STREAMS, made_up({**USUAL, **values}, seeds)))[QUESTION[text]]
    assert all(answer == "not run" for cell, answer in by_cell.items() if cell != CELL)
    assert overall_answer(by_cell) == by_cell.get(CELL)
    return overall_answer(by_cell)


def test_a_claim_that_holds_one_that_does_not_and_a_tie():
    assert answer_to({"linear": (0.6, 0.01)}) == "yes"
    assert answer_to({"linear": (0.6, 0.01), "Spectral": (0.7, 0.01)}) == "no"
    assert answer_to({"linear": (0.6, 0.01), "Spectral": (0.6, 0.01)}) == "open"
    assert answer_to({"linear": (0.6, 0.01)}, seeds=19) == "not run"  # too few
    eighth = "Will an eighth of the batch do?"
    assert answer_to({"linear": (0.6, 0.003), "linear 1/8": (0.605, 0.003)}, text=eighth) == "yes"
    assert answer_to({"linear": (0.6, 0.003), "linear 1/8": (0.55, 0.003)}, text=eighth) == "no"
    assert answer_to({"linear": (0.6, 0.003), "linear 1/8": (0.58, 0.003)}, text=eighth) == "open"


def test_cells_with_other_methods():
    """Where a method was not run, its claims were not run; other claims on the same stream and net are answered."""
    more = made_up({"Std": (0.1, 0.01), "linear": (0.6, 0.01)}, stream="pairs", net="kumar", norm="batch")
    answer = answers(findings_of(STREAMS, [*made_up({**USUAL, "linear": (0.6, 0.01)}), *more]))
    first, second = QUESTIONS[:2]
    pairs = CELLS[-1]
    assert (answer[first][CELL], answer[first][pairs], overall_answer(answer[first])) == ("yes", "yes", "yes")
    assert (answer[second][CELL], answer[second][pairs], overall_answer(answer[second])) == ("yes", "not run", "yes")


def test_holm_over_all_claims():
    """Claims that were not run count: the smallest p-value is multiplied by the number of all claims."""
    findings = findings_of(STREAMS, made_up({**USUAL, "linear": (0.505, 0.01)}))
    assert len(findings) == len(STREAMS.claims) == sum(map(len, CLAIMS.values()))
    ps = [finding.p for finding in findings if finding.p is not None]
    smallest = next(finding for finding in findings if finding.p == min(ps))
    assert smallest.p_holm == pytest.approx(min(1.0, len(findings) * min(ps)))


def test_claims_can_be_judged():
    """Every claim is about existing methods, a stream and its metric, and a net for which both methods are meant."""
    assert len({claim.text for claim in STREAMS.claims}) == len(STREAMS.claims) > 100
    for claim in STREAMS.claims:
        assert {claim.better, claim.than} <= set(METHODS)
        assert StreamsConfig(**claim.where).protocol.metric == claim.metric
        assert claim.minimum_seeds == STREAMS.seeds == 20
        if claim.where["norm"] != "none":
            assert METHODS[claim.better].norm == METHODS[claim.than].norm == "none"


def test_settings_that_no_search_chose():
    """Runs with such settings are shown, but not judged; beside runs with chosen settings they are not even shown."""
    plain = made_up({"linear": (0.9, 0.01), "Std": (0.1, 0.01)})
    for run in plain:
        run.record["tuned"] = {}
    notes, tables = STREAMS.reporting.sentences_and_tables(plain)
    assert "nothing is judged" in notes[0]
    assert [row["method"].text for row in tables[0].rows] == ["Std", "linear"]
    both = [*made_up({"linear": (0.5, 0.01), "Std": (0.6, 0.01)}), *plain]
    notes, tables = STREAMS.reporting.sentences_and_tables(both)
    assert "Does linear keep nets learning? No." in notes[0]
    assert [row["nets"].text for row in tables[1].rows] == ["20", "20"]


class MadeUpArrays:
    """A store with arrays for made-up runs: accuracy falls from 1 by 0.01 a task, and by 0.001 from seed to seed."""

    def arrays(self, run):
        return {"online": 1 - torch.arange(50) / 100 - run.seed / 1000}


def test_accuracy_over_the_tasks():
    """Every point is the mean over two of fifty tasks and over the nets; each method that is drawn has a line."""
    runs = [Run(run.record, MadeUpArrays()) for run in made_up({**USUAL, "linear": (0.6, 0.01)}, 3)]
    figures = STREAMS.reporting.figures(runs)
    (axis,) = figures["Accuracy over the tasks: means over the nets and their 95 % intervals"].axes
    assert {line.get_label() for line in axis.get_lines()} == set(DRAWN)
    for line in axis.get_lines():
        assert list(line.get_xdata()) == [2.0 * (i + 1) for i in range(25)]
        assert list(line.get_ydata()) == pytest.approx(
            [100 * (1 - (2 * i + 0.5) / 100 - 0.001) for i in range(25)], rel=1e-5
        )
    assert len(figures) == 1  # three seeds are too few for a claim
    figures = STREAMS.reporting.figures([Run(run.record, MadeUpArrays()) for run in made_up(USUAL)])
    assert [title.partition(":")[0] for title in figures] == ["Accuracy over the tasks", f"The claims on {CELL}"]


# Whether one λ suits all streams


def grid(best, cell, first=0.5):
    """The runs of a search: of linear with two weights, and of plain training.

    Args:
        best: weight → score.
        cell: the stream and net, as fields of the configuration.
        first: accuracy on the first task, for both weights or by weight.
    """
    runs = []
    for weight, value in best.items():
        tuned = {"lr": 1e-3, "second": 0.0, "weight": weight}
        at = first[weight] if isinstance(first, dict) else first
        runs += made_up({"linear": (value, 0.0, at)}, 3, tuned, CHOOSING, **cell)
    for lr in (1e-4, 1e-2):
        runs += made_up({"Std": (0.1, 0.0, 0.5)}, 3, {"lr": lr, "second": 0.0}, CHOOSING, **cell)
    return runs


def scores_by_conditions(runs):
    return {conditions: scores_of_runs(conditions, compared) for conditions, compared in by_conditions(runs).items()}


DIGITS, LABELS = {}, {"stream": "labels"}


def test_one_setting_for_all():
    """Chosen is the setting with the smallest largest loss, of those that cost at most two points on the first task."""
    runs = [*grid({1.0: 0.8, 3.0: 0.79}, DIGITS), *grid({1.0: 0.6, 3.0: 0.62}, LABELS)]
    best = transfer(scores_by_conditions(runs), "linear")
    assert best.setting == (1e-3, 3.0, 0.0)
    assert sorted(best.losses.values()) == pytest.approx([0.0, 0.01])
    assert list(best.first.values()) == pytest.approx([0.0, 0.0])
    assert best.holds
    slow = [*grid({1.0: 0.8, 3.0: 0.79}, DIGITS, {1.0: 0.49, 3.0: 0.4}), *grid({1.0: 0.55, 3.0: 0.62}, LABELS)]
    best = transfer(scores_by_conditions(slow), "linear")  # the other setting costs the first task ten points
    assert best.setting == (1e-3, 1.0, 0.0)
    assert max(best.losses.values()) == pytest.approx(0.07)
    assert not best.holds
    assert transfer(scores_by_conditions(runs), "linear decoupled") is None


def test_published_searches_lie_beside_the_records(tmp_path):
    """The report of published runs has the tables of the searches; two for the same stream and net are one table."""
    config = {**StreamsConfig(valid=0.0).to_dict(), **CELL._asdict()}
    rows = [
        {"lr": 1e-3, "weight": weight, "second": 0.0, "score": weight / 10, "first_online_accuracy": 0.5}
        for weight in (1, 3)
    ]
    plain = {"lr": 1e-3, "weight": None, "second": 0.0, "score": 0.2, "first_online_accuracy": 0.5}
    lines = [
        {"name": name, "experiment": "streams", "config": config, "variants": {name: {"tried": tried}}}
        for name, tried in (("linear", rows), ("Std", [plain]))
    ]
    (tmp_path / "tuned.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    runs = [Run(run.record, Store(tmp_path)) for run in made_up({"linear": (0.6, 0.01), "Std": (0.5, 0.01)})]
    _, tables = STREAMS.reporting.sentences_and_tables(runs)
    assert [table.caption for table in tables[-2:]] == [
        f"{CELL}: what the search found, mean over its seeds", "Does one λ do for all streams and nets?"
    ]  # fmt: skip
    assert [[cell.text for cell in list(row.values())[:4]] for row in tables[-2].rows] == [
        ["linear", "2", "lr 0.001, weight 3", "30.0"], ["Std", "1", "lr 0.001", "20.0"]
    ]  # fmt: skip
    assert len(STREAMS.reporting.sentences_and_tables(made_up({"linear": (0.6, 0.01)}))[1]) == len(tables) - 2


def test_the_area_over_learning_rates():
    """The area under the best scores, by hand: Adam's range is 1e-4 to 3e-3, 1.477 decades."""
    scores = {(1e-4, 1.0, 0.0): 0.2, (1e-4, 3.0, 0.0): 0.4, (1e-3, 1.0, 0.0): 0.8, (3e-3, 1.0, 0.0): 0.6}
    third = math.log10(3)
    assert area(scores, "adam") == pytest.approx((0.6 + 0.7 * third) / (1 + third))
    assert area({**scores, (1e-5, 1.0, 0.0): 0.0, (3e-2, 1.0, 0.0): 0.0}, "adam") == pytest.approx(
        (0.6 + 0.7 * third) / (1 + third)
    )
    del scores[3e-3, 1.0, 0.0]
    assert area(scores, "adam") is None

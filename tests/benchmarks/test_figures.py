"""Figures of docs/ show the records."""

from pathlib import Path

import pytest

from benchmarks.figures import METHODS, SERIES, few_labels, keep_learning
from benchmarks.keep_learning_digits import JUDGED
from benchmarks.tables.keep_learning import digits_records
from racecar_lab.running.results import Store
from tests.figures import legible

RESULTS = Path(__file__).parents[2] / "results"


def test_few_labels():
    """One point by hand, without nets that died: lRR of the paper's loss, six convolutions on blurred digits."""
    runs = [run for run in Store(RESULTS / "few-labels-losses").runs() if not run.config["longer"]]
    place = {"task": "blur", "depth": 6, "start": "torch", "norm": "none"}
    at_place = [run for run in runs if all(run.config[name] == value for name, value in place.items())]
    ours = {run.seed: run for run in at_place if (run.variant, run.config["scale"]) == ("lRR", "sum")}
    std = {run.seed: run for run in at_place if run.variant == "Std"}
    pairs = [(ours[seed], std[seed]) for seed in range(10) if not ours[seed].dead and not std[seed].dead]
    assert len(pairs) == 9
    by_hand = 100 * sum(a.metrics["probe_2"] - b.metrics["probe_2"] for a, b in pairs) / 9

    figure = few_labels(RESULTS)
    legible(figure)
    axis = figure.axes[0]
    digits, blurred = axis.containers[:3], axis.containers[3:6]
    assert [line.get_label() for line in digits] == list(SERIES)
    assert abs(blurred[1].lines[0].get_xdata()[2] - by_hand) < 1e-9


def test_keep_learning_has_every_task_of_every_method():
    known = {(record["net"], record["method"]): record for record in digits_records(RESULTS, JUDGED)}
    for axis in keep_learning(RESULTS).axes:
        for line, method in zip(axis.lines, METHODS, strict=False):  # the last line is chance
            (by_seed,) = known[axis.get_title(), method]["learned"]
            expected = [100 * sum(task) / len(task) for task in zip(*by_seed, strict=True)]
            assert list(line.get_ydata()) == pytest.approx(expected)

"""The report of the streams in notes and tables: answers, results of every method, and what the searches chose."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from racecar_lab.experiment import Experiment
from racecar_lab.experiments.streams.claims import CELLS, QUESTIONS
from racecar_lab.experiments.streams.conditions import Conditions, by_conditions, by_method, judged_runs
from racecar_lab.experiments.streams.published_searches import published_scores
from racecar_lab.experiments.streams.rule import answers, overall_answer
from racecar_lab.experiments.streams.transfer import format_setting, scores_of_runs, search_tables, setting_key
from racecar_lab.report import words
from racecar_lab.report.claim_tables import claims_table, unjudged_table
from racecar_lab.report.page_table import Cell, Table, mean_cell, number_cell, word_cell
from racecar_lab.report.section import findings_of
from racecar_lab.report.statistics import estimate
from racecar_lab.streams import METHODS

if TYPE_CHECKING:
    from racecar_lab.running.run import Run

UNTUNED = "These runs have the usual settings: claims are of settings that a search chose, and nothing is judged."
SHARES = {
    "online_accuracy": "while learning, %",
    "test_accuracy": "test, %",
    "valid_accuracy": "held out, %",
    "first_online_accuracy": "first task, while learning, %",
    "first_test_accuracy": "first task, test, %",
    "dead_units": "dead units, %",
}
"""Metrics between 0 and 1, shown in per cent → titles of their columns."""
NUMBERS = {"effective_rank": "effective rank", "weight_norm": "weight norm", "linear_error": "error of linear"}
"""Metrics that are not shown in per cent → titles of their columns."""


def sentences_and_tables(experiment: Experiment[Any], runs: Sequence[Run]) -> tuple[list[str], list[Table]]:
    """Sentences and tables for the page. For runs by which claims are judged they begin with the answers to the
    questions; for the runs of a search they show the chosen settings, and whether one λ suits all streams."""
    judged = judged_runs(runs)
    runs = judged or [run for run in runs if run.finished]
    groups = by_conditions(runs)
    notes = [f"{conditions}: {_protocol(compared)}." for conditions, compared in groups.items()]
    diverged = [run for run in runs if run.metrics.get("lost")]
    if diverged:
        counts = ", ".join(f"{name} {len(runs_of_method)}" for name, runs_of_method in by_method(diverged).items())
        notes.append(f"Nets whose weights were not finite at the end, counted with what they got: {counts}.")
    if any(run.purpose == "search" for run in runs):
        scores = {conditions: scores_of_runs(conditions, compared) for conditions, compared in groups.items()}
        return notes, search_tables(scores)
    tables = [results_table(conditions, compared) for conditions, compared in groups.items()]
    if not judged:
        return [*([] if any(run.purpose for run in runs) else [UNTUNED]), *notes], tables
    findings = findings_of(experiment, judged)
    answer = answers(findings)
    overall = {question.text: overall_answer(answer[question]) for question in QUESTIONS}
    summary = " ".join(f"{text} {verdict.capitalize()}." for text, verdict in overall.items() if verdict != "not run")
    summary = summary or "None of the questions can be answered by these runs."
    rows = [
        {"question": Cell(question.text)} | {str(cell): word_cell(answer[question].get(cell, "")) for cell in CELLS}
        for question in QUESTIONS
    ]
    answers_table = Table("The answers, by the rule that was written before the runs", rows)
    claim_tables = [claims_table(findings), unjudged_table(findings)]
    return [summary, *notes], [answers_table, *tables, *claim_tables, *search_tables(published_scores(judged))]


def _protocol(runs: Sequence[Run]) -> str:
    """The protocol of runs with the same conditions in words: lengths, difference from the published one, and number of
    methods."""
    conditions = Conditions.of(runs[0].config)
    return (
        f"{words.count(conditions.tasks, 'task')} of {words.count(conditions.images, 'picture')}, "
        f"{words.count(conditions.passes, 'pass', 'passes')}, batches of {conditions.batch}; {conditions.difference}; "
        f"{words.count(len(by_method(runs)), 'method')}"
    )


def results_table(conditions: Conditions, runs: Sequence[Run]) -> Table:
    """Table of the results of every method under the same conditions: its setting, and mean ± standard deviation of
    each metric over seeds."""
    rows = []
    for method, runs_of_method in by_method(runs).items():
        seconds = [step_s for run in runs_of_method if (step_s := run.record["cost"].get("step_s"))]
        rows.append({
            "method": word_cell(method),
            "what it is": Cell(METHODS[method].about if method in METHODS else ""),
            "setting": word_cell(_setting(runs_of_method)),
            "nets": number_cell(len(runs_of_method), str),
            **{title: _mean(runs_of_method, metric, 100.0) for metric, title in SHARES.items()},
            **{title: _mean(runs_of_method, metric, 1.0) for metric, title in NUMBERS.items()},
            "a net's step": number_cell(mean(seconds) if seconds else None, words.seconds),
        })  # fmt: skip
    return Table.of(
        f"{conditions}: accuracy in the second half of the tasks, units and weights at the end, mean ± sd over seeds",
        rows,
    )


def _mean(runs: Sequence[Run], metric: str, factor: float) -> Cell:
    """A table cell with the mean of a metric over runs and its standard deviation, both times ``factor``; empty if no
    run has it."""
    mean_of_runs = estimate([run.metrics[metric] for run in runs if metric in run.metrics])
    return mean_cell(None if mean_of_runs is None else mean_of_runs.times(factor))


def _setting(runs: Sequence[Run]) -> str:
    """The setting of a method's runs in words, or, if they have different ones, the number of settings."""
    texts = {format_setting(setting_key(run)) for run in runs}
    return texts.pop() if len(texts) == 1 else f"{len(texts)} settings"

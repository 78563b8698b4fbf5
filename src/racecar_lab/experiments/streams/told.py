"""What the streams say of themselves: the answers to the questions, tables of every method, and of what was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from racecar_lab.experiment import Experiment
from racecar_lab.experiments.streams.cells import Where, by_cell, by_method, judged_runs
from racecar_lab.experiments.streams.claims import CELLS, QUESTIONS
from racecar_lab.experiments.streams.rule import answers, whole
from racecar_lab.experiments.streams.searched import kept_beside
from racecar_lab.experiments.streams.transfer import search_tables, setting_key, told_setting, tried_in
from racecar_lab.report import words
from racecar_lab.report.claim_tables import claims_table, unjudged_table
from racecar_lab.report.page_table import Cell, Column, Table, mean_cell, number_cell, word_cell
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
NUMBERS = {"effective_rank": "effective rank", "weight_norm": "weight norm", "linear_error": "error of linear"}


def told(experiment: Experiment[Any], runs: Sequence[Run]) -> tuple[list[str], list[Table]]:
    """Of runs that are evidence the answers; of a search what it chose, and which λ would do for all."""
    judged = judged_runs(runs)
    runs = judged or [run for run in runs if run.finished]
    cells = by_cell(runs)
    notes = [f"{where}: {_protocol(there)}." for where, there in cells.items()]
    lost = [run for run in runs if run.metrics.get("lost")]
    if lost:
        named = ", ".join(f"{name} {len(some)}" for name, some in by_method(lost).items())
        notes.append(f"Nets whose weights were not finite at the end, counted with what they got: {named}.")
    if any(run.purpose == "search" for run in runs):
        return notes, search_tables({where: tried_in(where, some) for where, some in cells.items()})
    tables = [results_table(where, some) for where, some in cells.items()]
    if not judged:
        return [*([] if any(run.purpose for run in runs) else [UNTUNED]), *notes], tables
    findings = findings_of(experiment, judged)
    answer = answers(findings)
    verdicts = {one.text: verdict for one in QUESTIONS if (verdict := whole(answer[one])) != "not run"}
    first = " ".join(f"{text} {verdict.capitalize()}." for text, verdict in verdicts.items())
    first = first or "None of the questions can be answered by these runs."
    columns = [Column("question"), *(Column(str(cell)) for cell in CELLS)]
    rows = [[Cell(one.text), *(word_cell(answer[one].get(cell, "")) for cell in CELLS)] for one in QUESTIONS]
    rule = Table("The answers, by the rule that was written before the runs", columns, rows)
    more = [claims_table(findings), unjudged_table(findings)]
    return [first, *notes], [rule, *tables, *more, *search_tables(kept_beside(judged))]


def _protocol(runs: Sequence[Run]) -> str:
    """How a stream was made, and what of its protocol is shortened."""
    where = Where.of(runs[0].config)
    return (
        f"{words.count(where.tasks, 'task')} of {words.count(where.images, 'picture')}, "
        f"{words.count(where.passes, 'pass', 'passes')}, batches of {where.batch}; {where.shortened}; "
        f"{words.count(len(by_method(runs)), 'method')}"
    )


def results_table(where: Where, runs: Sequence[Run]) -> Table:
    """Every method with its setting: mean ± standard deviation over the seeds."""
    columns = [
        Column("method"), Column("what it is"), Column("setting"), Column("nets", "number"),
        *(Column(title, "number") for title in (*SHARES.values(), *NUMBERS.values())), Column("a net's step", "number"),
    ]  # fmt: skip
    rows = []
    for name, some in by_method(runs).items():
        cells = [_mean(some, metric, 100.0) for metric in SHARES] + [_mean(some, metric, 1.0) for metric in NUMBERS]
        steps = [one for run in some if (one := run.record["cost"].get("step_s"))]
        step = number_cell(mean(steps) if steps else None, words.seconds)
        about = METHODS[name].about if name in METHODS else ""
        rows.append(
            [word_cell(name), Cell(about), word_cell(_setting(some)), number_cell(len(some), str), *cells, step]
        )
    return Table.of(
        f"{where}: accuracy in the second half of the tasks, units and weights at the end, mean ± sd over seeds",
        columns,
        rows,
    )


def _mean(runs: Sequence[Run], metric: str, factor: float) -> Cell:
    mean_of_runs = estimate([run.metrics[metric] for run in runs if metric in run.metrics])
    return mean_cell(None if mean_of_runs is None else mean_of_runs.times(factor))


def _setting(runs: Sequence[Run]) -> str:
    """Learning rate, strength and second number, unless they are several."""
    texts = {told_setting(setting_key(run)) for run in runs}
    return texts.pop() if len(texts) == 1 else f"{len(texts)} settings"

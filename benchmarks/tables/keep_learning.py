"""Tables of docs/keep-learning.md, from the records of benchmarks.keep_learning_digits and `racecar run streams`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks import records
from benchmarks.keep_learning_digits import CHOOSING, JUDGED, NETS, by_strength, first_accuracy, judge, late_accuracy
from benchmarks.tables.common import gain, markdown, typeset
from racecar_lab.experiments import experiment
from racecar_lab.experiments.streams.conditions import Conditions, by_conditions, by_method, judged_runs
from racecar_lab.experiments.streams.published_searches import SEARCHES, read_scores
from racecar_lab.experiments.streams.transfer import transfer_table
from racecar_lab.report.section import findings_of
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run

NAMES = {
    "plain": "plain",
    "keep_learning": "**keep_learning**, as it comes",
    "share": "keep_learning with `GradientShare`",
    "linear": 'mode "linear", head left out',
    "orthogonality": "soft orthogonality",
}
"""Method → its name in the tables."""
NEEDED = {"plain": "at least 15", "orthogonality": "not behind: above −2", "keep_learning": "at most 3 behind"}
"""Method with which another one is compared → the points that are needed for the claim to hold."""


def digits_records(results: Path, seeds: Sequence[int]) -> list[Mapping[str, Any]]:
    """The records of trainings with these seeds, sorted by net and method."""
    published = records.read(results / "keep-learning-digits").values()
    order = {place: i for i, place in enumerate((net, method) for net in NETS for method in NAMES)}
    with_seeds = (record for record in published if record["seeds"] == list(seeds))
    return sorted(with_seeds, key=lambda record: order[record["net"], record["method"]])


def accuracies(results: Path) -> str:
    """Accuracies on the judged seeds."""
    rows = []
    for record in digits_records(results, JUDGED):
        (by_seed,) = record["learned"]
        strength = f"{record['strengths'][0]:g}" if record["method"] in ("orthogonality", "share") else ""
        numbers = (mean(map(of, by_seed)) for of in (first_accuracy, late_accuracy, lambda by_task: 100 * by_task[-1]))
        rows.append([record["net"], NAMES[record["method"]], strength, *(f"{number:.1f}" for number in numbers)])
    return markdown(["net", "method", "strength", "first task, %", "second half, %", "last task, %"], rows)


def digits_claims(results: Path) -> str:
    """Results of the claims that were made before."""
    rows = []
    for claim in judge(digits_records(results, JUDGED)):
        better, than = claim.comparison[:2]
        points, low, high = (typeset(f"{value:z.1f}") for value in (claim.gain.mean, *claim.interval))
        rows.append([claim.net, NAMES[better], NAMES[than], points, f"{low} to {high}", NEEDED[than], claim.verdict])
    return markdown(["net", "method", "over", "points, second half", "interval", "needed", "the claim"], rows)


def chosen(results: Path) -> str:
    """Accuracies of all settings that were tried on the seeds for choosing."""
    rows = []
    for record in digits_records(results, CHOOSING):
        first, late = by_strength(record, first_accuracy), by_strength(record, late_accuracy)
        for value in record["strengths"]:
            strength = "" if record["method"] == "plain" else f"{value:g}"
            rows.append([record["net"], NAMES[record["method"]], strength, f"{first[value]:.1f}", f"{late[value]:.1f}"])
    return markdown(["net", "method", "strength", "first task, %", "second half, %"], rows)


@cache
def streams_runs(results: Path) -> list[Run]:
    """The published runs by which the claims of streams are judged."""
    return judged_runs(Store(results / "streams").runs())


def stream_and_norm(conditions: Conditions) -> str:
    """Heading of a stream's columns, such as "cifar-labels, batch norm"."""
    return conditions.stream if conditions.norm == "none" else f"{conditions.stream}, {conditions.norm} norm"


def streams_claims(results: Path) -> str:
    """Points, corrected interval and verdict of all claims; a row for each pair of methods, a column for a stream."""
    runs = streams_runs(results)
    streams = {str(conditions.cell): stream_and_norm(conditions) for conditions in by_conditions(runs)}
    rows: dict[str, dict[str, str]] = {}
    for finding in findings_of(experiment("streams"), runs):
        if finding.judged:
            cell, _, text = finding.claim.text.partition(": ")
            rows.setdefault(text, {})[cell] = f"{gain(finding)} {finding.verdict}"
    cells = [[text, *(by_cell.get(cell, "–") for cell in streams)] for text, by_cell in rows.items()]
    return markdown(["claim", *streams.values()], cells)


def one_lambda(results: Path) -> str:
    """For each way of using λ the one setting that loses least on all streams, and whether it transfers; from the
    published scores of the searches."""
    table = transfer_table(read_scores(results / "streams" / SEARCHES))
    return markdown(list(table.columns), [[cell.text for cell in row.values()] for row in table.rows])


def streams_methods(results: Path) -> str:
    """Mean and standard deviation over seeds of all methods, in %, on every stream. The stream on which most methods
    were run comes first; the best methods on it come first."""
    groups = [(conditions, by_method(runs)) for conditions, runs in by_conditions(streams_runs(results)).items()]
    groups.sort(key=lambda group: -len(group[1]))
    head, rows = ["method"], {method: [method] for _, runs_by_method in groups for method in runs_by_method}
    best: dict[str, float] = {}
    for conditions, runs_by_method in groups:
        metrics = {"second half": conditions.judged_by, "first task": f"first_{conditions.judged_by}"}
        if conditions.stream == "permuted":
            metrics["second half, test pictures"] = "test_accuracy"
        head += [f"{stream_and_norm(conditions)}: {name}" for name in metrics]
        for method, row in rows.items():
            for metric in metrics.values():
                values = [100 * run.record["metrics"][metric] for run in runs_by_method.get(method, ())]
                row.append(f"{mean(values):.1f} ± {stdev(values):.1f}" if values else "–")
                if metric == conditions.judged_by and values:
                    best.setdefault(method, mean(values))
    return markdown(head, sorted(rows.values(), key=lambda row: -best[row[0]]))

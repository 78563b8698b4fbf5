"""The tables and the figure of docs/keep-learning.md that show the records of `racecar run streams`.

python -m benchmarks.streams_page [--results results] [--page docs/keep-learning.md]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from benchmarks.pages import write_page
from benchmarks.sentences import in_points
from racecar_lab.experiments import experiment
from racecar_lab.experiments.streams.conditions import by_conditions, by_method, judged_runs
from racecar_lab.experiments.streams.figures import over_tasks, panels_of
from racecar_lab.experiments.streams.published_searches import SEARCHES, read_scores
from racecar_lab.experiments.streams.transfer import transfer_table
from racecar_lab.report import told
from racecar_lab.report.pictures import save_light
from racecar_lab.report.section import findings_of
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run

FOLDER, FIGURE = "streams", Path("docs/images/streams.svg")
PARTS = re.compile(r"(<!-- (stream claims|one lambda|streams) -->\n).*?(<!-- end -->)", re.DOTALL)
"""The parts of the page between two marks, of which the first names the part."""


def published_runs(results: Path) -> list[Run]:
    """The published runs by which claims are judged."""
    return judged_runs(Store(results / FOLDER).runs())


def claims_table(judged: Sequence[Run]) -> str:
    """A table in Markdown of the results of all claims: points, corrected interval and verdict; a row for each pair of
    methods, a column for each stream and net."""
    streams = {str(conditions.cell): conditions.stream for conditions in by_conditions(judged)}
    rows: dict[str, dict[str, str]] = {}
    for finding in told.judged(findings_of(experiment("streams"), judged)):
        cell, _, text = finding.claim.text.partition(": ")
        rows.setdefault(text, {})[cell] = f"{in_points(finding)} {finding.verdict}"
    lines = [["claim", *streams.values()], ["---"] * (len(streams) + 1)]
    lines += [[text, *(by_cell.get(cell, "–") for cell in streams)] for text, by_cell in rows.items()]
    return _markdown(lines)


def lambda_table(folder: Path) -> str:
    """A table in Markdown of whether one λ suits all streams, from the published scores of the searches."""
    table = transfer_table(read_scores(folder / SEARCHES))
    head = [column.title for column in table.columns]
    rows = [[cell.text for cell in row] for row in table.rows]
    return _markdown([head, ["---"] * len(head), *rows])


def methods_table(judged: Sequence[Run]) -> str:
    """A table in Markdown of all methods: mean and standard deviation over seeds, in %, on every stream. The stream on
    which most methods were run comes first; the best methods on it come first."""
    groups = [(conditions, by_method(runs)) for conditions, runs in by_conditions(judged).items()]
    groups.sort(key=lambda group: -len(group[1]))
    head, rows = ["method"], {method: [method] for _, runs_by_method in groups for method in runs_by_method}
    order: dict[str, float] = {}
    for conditions, runs_by_method in groups:
        metric_judged = conditions.judged_by
        metrics = {"second half": metric_judged, "first task": f"first_{metric_judged}"}
        if conditions.stream == "permuted":
            metrics["second half, test pictures"] = "test_accuracy"
        head += [f"{conditions.stream}: {name}" for name in metrics]
        for method, row in rows.items():
            for metric in metrics.values():
                values = [100 * run.record["metrics"][metric] for run in runs_by_method.get(method, ())]
                row.append(f"{mean(values):.1f} ± {stdev(values):.1f}" if values else "–")
                if metric == metric_judged and values:
                    order.setdefault(method, mean(values))
    best_first = sorted(rows.values(), key=lambda row: -order[row[0]])
    return _markdown([head, ["---", *["---:"] * (len(head) - 1)], *best_first])


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a table in Markdown; the second row separates the head."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(text: str, results: Path) -> str:
    """The text of the page with its tables made anew from the records."""
    judged = published_runs(results)
    tables = {
        "stream claims": claims_table(judged),
        "one lambda": lambda_table(results / FOLDER),
        "streams": methods_table(judged),
    }
    return PARTS.sub(lambda mark: f"{mark[1]}\n{tables[mark[2]]}\n\n{mark[3]}", text)


if __name__ == "__main__":
    save_light(over_tasks(panels_of(published_runs(Path("results")))), FIGURE)
    write_page(__doc__, Path("docs/keep-learning.md"), page, Path("results"))

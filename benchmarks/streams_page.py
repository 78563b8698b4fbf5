"""The tables and the figure of docs/keep-learning.md that show the records of `racecar run streams`.

python -m benchmarks.streams_page [--results results] [--page docs/keep-learning.md]
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from benchmarks.pages import write_page
from benchmarks.sentences import in_points
from racecar_lab.experiments import experiment
from racecar_lab.experiments.streams.conditions import by_conditions, by_method, judged_runs
from racecar_lab.experiments.streams.figures import over_tasks, panels_of
from racecar_lab.experiments.streams.published_searches import SEARCHES, scores_of_search
from racecar_lab.experiments.streams.transfer import transfer_table
from racecar_lab.report import told
from racecar_lab.report.pictures import save_light
from racecar_lab.report.section import findings_of
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run

FOLDER, FIGURE = "streams", Path("docs/images/streams.svg")
MARK = re.compile(r"(<!-- (stream claims|one lambda|streams) -->\n).*?(<!-- end -->)", re.DOTALL)


def runs(results: Path) -> list[Run]:
    """The runs by which claims are judged."""
    return judged_runs(Store(results / FOLDER).runs())


def claims(judged: Sequence[Run]) -> str:
    """What came of each claim, a row for its methods and a column for each stream: points and corrected intervals."""
    cells = {str(where.cell): str(where.stream) for where in by_conditions(judged)}
    rows: dict[str, dict[str, str]] = {}
    for one in told.judged(findings_of(experiment("streams"), judged)):
        cell, _, text = one.claim.text.partition(": ")
        rows.setdefault(text, {})[cell] = f"{in_points(one)} {one.verdict}"
    lines = [["claim", *cells.values()], ["---"] * (len(cells) + 1)]
    lines += [[text, *(there.get(cell, "–") for cell in cells)] for text, there in rows.items()]
    return _markdown(lines)


def one_lambda(folder: Path) -> str:
    """Whether one λ does for all streams, in each of its forms; from what the searches tried."""
    shown = transfer_table(dict(map(scores_of_search, map(json.loads, (folder / SEARCHES).read_text().splitlines()))))
    head = [column.title for column in shown.columns]
    rows = [[cell.text for cell in row] for row in shown.rows]
    return _markdown([head, ["---"] * len(head), *rows])


def table(judged: Sequence[Run]) -> str:
    """A row for each method, the best first on the stream with most of them: means and standard deviations over seeds,
    in %."""
    cells = {where: by_method(there) for where, there in by_conditions(judged).items()}
    cells = dict(sorted(cells.items(), key=lambda one: -len(one[1])))
    head, rows = ["method"], {name: [name] for there in cells.values() for name in there}
    order: dict[str, float] = {}
    for where, there in cells.items():
        metrics = {"second half": where.judged_by, "first task": f"first_{where.judged_by}"}
        if where.stream == "permuted":
            metrics["second half, test pictures"] = "test_accuracy"
        head += [f"{where.stream}: {name}" for name in metrics]
        for method, row in rows.items():
            for metric in metrics.values():
                values = [100 * run.record["metrics"][metric] for run in there.get(method, ())]
                row.append(f"{mean(values):.1f} ± {stdev(values):.1f}" if values else "–")
                if metric == where.judged_by and values:
                    order.setdefault(method, mean(values))
    best_first = sorted(rows.values(), key=lambda row: -order[row[0]])
    return _markdown([head, ["---", *["---:"] * (len(head) - 1)], *best_first])


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(text: str, results: Path) -> str:
    """The page with its tables filled in."""
    judged = runs(results)
    tables = {"stream claims": claims(judged), "one lambda": one_lambda(results / FOLDER), "streams": table(judged)}
    return MARK.sub(lambda mark: f"{mark[1]}\n{tables[mark[2]]}\n\n{mark[3]}", text)


if __name__ == "__main__":
    save_light(over_tasks(panels_of(runs(Path("results")))), FIGURE)
    write_page(__doc__, Path("docs/keep-learning.md"), page, Path("results"))

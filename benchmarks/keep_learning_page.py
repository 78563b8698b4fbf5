"""The tables of docs/keep-learning.md that show the records of ``benchmarks.keep_learning_digits``.

python -m benchmarks.keep_learning_page
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import records
from benchmarks.keep_learning_digits import CHOOSING, JUDGED, NETS, by_strength, first_accuracy, judge, late_accuracy
from benchmarks.sentences import signed
from racecar.support.files import write_text

FOLDER, PAGE = "keep-learning-digits", Path("docs/keep-learning.md")
PARTS = re.compile(r"(<!-- (judged|chosen) -->\n).*?(<!-- end -->)", re.DOTALL)
"""The parts of the page between two marks, of which the first names the part."""
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

Records = Sequence[Mapping[str, Any]]


def read(results: Path) -> list[dict[str, Any]]:
    """All records, sorted by net and method."""
    nets, methods = list(NETS), list(NAMES)
    return sorted(
        records.read(results / FOLDER).values(),
        key=lambda record: (nets.index(record["net"]), methods.index(record["method"])),
    )


def with_seeds(known: Records, seeds: Sequence[int]) -> list[Mapping[str, Any]]:
    """The records of trainings with these seeds."""
    return [record for record in known if record["seeds"] == list(seeds)]


def judged_tables(known: Records) -> str:
    """Two tables in Markdown: accuracies on the judged seeds, and the results of the claims."""
    lines = [
        "| net | method | strength | first task, % | second half, % | last task, % |",
        "|---|---|---:|---:|---:|---:|",
    ]
    metrics = (first_accuracy, late_accuracy, lambda by_task: 100 * by_task[-1])
    for record in with_seeds(known, JUDGED):
        (by_seed,) = record["learned"]
        strength = f"{record['strengths'][0]:g}" if record["method"] in ("orthogonality", "share") else ""
        numbers = (mean(map(metric, by_seed)) for metric in metrics)
        cells = [record["net"], NAMES[record["method"]], strength, *(f"{number:.1f}" for number in numbers)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| net | method | over | points, second half | interval | needed | the claim |"]
    lines.append("|---|---|---|---:|---|---|---|")
    for claim in judge(with_seeds(known, JUDGED)):
        interval = f"{signed(claim.interval[0])} to {signed(claim.interval[1])}"
        better, than = claim.comparison[:2]
        cells = [claim.net, NAMES[better], NAMES[than], signed(claim.gain.mean), interval, NEEDED[than], claim.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def chosen_table(known: Records) -> str:
    """A table in Markdown: accuracies of all settings that were tried on the seeds for choosing."""
    lines = ["| net | method | strength | first task, % | second half, % |", "|---|---|---:|---:|---:|"]
    for record in with_seeds(known, CHOOSING):
        starts, ends = by_strength(record, first_accuracy), by_strength(record, late_accuracy)
        for value in record["strengths"]:
            strength = "" if record["method"] == "plain" else f"{value:g}"
            cells = [record["net"], NAMES[record["method"]], strength, f"{starts[value]:.1f}", f"{ends[value]:.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page(text: str, results: Path) -> str:
    """The text of the page with its tables made anew from the records."""
    known = read(results)
    tables = {"judged": judged_tables, "chosen": chosen_table}
    return PARTS.sub(lambda mark: f"{mark[1]}\n{tables[mark[2]](known)}\n\n{mark[3]}", text)


if __name__ == "__main__":
    write_text(PAGE, page(PAGE.read_text(), Path("results")))

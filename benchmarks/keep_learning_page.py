"""What docs/keep-learning.md says of the records of ``benchmarks.keep_learning_digits``.

python -m benchmarks.keep_learning_page
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import records
from benchmarks.keep_learning_digits import CHOOSING, JUDGED, NETS, by_strength, first, judge, late
from benchmarks.sentences import signed
from racecar.support.files import write_text

FOLDER, PAGE = "keep-learning-digits", Path("docs/keep-learning.md")
PARTS = re.compile(r"(<!-- (judged|chosen) -->\n).*?(<!-- end -->)", re.DOTALL)
NAMES = {
    "plain": "plain",
    "keep_learning": "**keep_learning**, as it comes",
    "share": "keep_learning with `GradientShare`",
    "linear": 'mode "linear", head left out',
    "orthogonality": "soft orthogonality",
}
NEEDED = {"plain": "at least 15", "orthogonality": "not behind: above −2", "keep_learning": "at most 3 behind"}
"""By the method that another one is compared with."""

Records = Sequence[Mapping[str, Any]]


def read(results: Path) -> list[dict[str, Any]]:
    """In the order of nets and methods."""
    found = records.read(results / FOLDER).values()
    return sorted(found, key=lambda one: (list(NETS).index(one["net"]), list(NAMES).index(one["method"])))


def of(known: Records, seeds: Sequence[int]) -> list[Mapping[str, Any]]:
    return [one for one in known if one["seeds"] == list(seeds)]


def judged(known: Records) -> str:
    """Accuracies on the judged seeds, and what came of the claims."""
    lines = [
        "| net | method | strength | first task, % | second half, % | last task, % |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for one in of(known, JUDGED):
        (runs,) = one["learned"]
        strength = f"{one['strengths'][0]:g}" if one["method"] in ("orthogonality", "share") else ""
        numbers = (mean(map(measured, runs)) for measured in (first, late, lambda run: 100 * run[-1]))
        cells = [one["net"], NAMES[one["method"]], strength, *(f"{number:.1f}" for number in numbers)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| net | method | over | points, second half | interval | needed | the claim |"]
    lines.append("|---|---|---|---:|---|---|---|")
    for claim in judge(of(known, JUDGED)):
        interval = f"{signed(claim.interval[0])} to {signed(claim.interval[1])}"
        better, than = claim.comparison[:2]
        cells = [claim.net, NAMES[better], NAMES[than], signed(claim.gain.mean), interval, NEEDED[than], claim.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def chosen(known: Records) -> str:
    """All that was tried on the seeds for choosing."""
    lines = ["| net | method | strength | first task, % | second half, % |", "|---|---|---:|---:|---:|"]
    for one in of(known, CHOOSING):
        starts, ends = by_strength(one, first), by_strength(one, late)
        for value in one["strengths"]:
            strength = "" if one["method"] == "plain" else f"{value:g}"
            cells = [one["net"], NAMES[one["method"]], strength, f"{starts[value]:.1f}", f"{ends[value]:.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def made(text: str, results: Path) -> str:
    """A page with its parts written again."""
    known = read(results)
    parts = {"judged": judged, "chosen": chosen}
    return PARTS.sub(lambda mark: f"{mark[1]}\n{parts[mark[2]](known)}\n\n{mark[3]}", text)


if __name__ == "__main__":
    write_text(PAGE, made(PAGE.read_text(), Path("results")))

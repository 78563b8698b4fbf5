"""Functions that all tables need: records and claims, numbers as text, and Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from racecar_lab.experiments import experiment
from racecar_lab.report import words
from racecar_lab.report.claim_words import gain_text
from racecar_lab.report.findings import Finding
from racecar_lab.report.section import findings_of
from racecar_lab.report.statistics import Estimate, estimate
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run

NUMBER = re.compile(r"(?:[✓○✗] )?[+−]?\d|–?$")
"""The start of a cell that holds a number, or the whole of an empty one."""


@cache
def finished_runs(folder: Path) -> list[Run]:
    """All finished runs of a folder of results."""
    return [run for run in Store(folder).runs() if run.finished]


@cache
def claims(folder: Path) -> list[Finding]:
    """The claims of the experiment whose records are in a folder of results, in every setting."""
    runs = list(Store(folder).runs())
    return findings_of(experiment(runs[0].record["experiment"]), runs)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; columns of numbers, but for the first, are aligned to the right."""
    _, *columns = zip(*rows, strict=True)
    rule = ["---", *("---:" if all(map(NUMBER.match, column)) else "---" for column in columns)]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


def typeset(text: str) -> str:
    """The text with real minus signs."""
    return text.replace("-", "−")


def mean_and_sd(values: Sequence[float], digits: int, sign: str = "") -> str:
    """As "76.2 ± 3.7", or "+3.4 ± 0.9" with ``sign`` "+"; a dash if there are no values."""
    estimated = estimate(values)
    if estimated is None:
        return "–"
    return typeset(f"{estimated.mean:{sign}.{digits}f} ± {estimated.sd or 0:.{digits}f}")


def with_interval(gain: Estimate | None) -> str:
    """A difference as "+3.4 (+1.8 to +5.1), p 0.0011", with its 95 % interval."""
    if gain is None or (ends := gain.interval()) is None:
        return "–"
    low, high = ends
    return typeset(f"{gain.mean:+.1f} ({low:+.1f} to {high:+.1f})") + f", p {words.p_value(gain.p)}"


def gain(finding: Finding) -> str:
    """A claim's gain as "+1.2 (0.3 to 2.1)", with its corrected interval."""
    mean, _, interval = gain_text(finding).partition(", ")
    return f"{mean.partition(' ')[0]} ({interval})"

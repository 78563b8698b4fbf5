"""Sentences about records: numbers as they are told, and a guard for what is said of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import fill

from racecar_lab.report.findings import Finding
from racecar_lab.report.statistics import Estimate
from racecar_lab.report.told import gain_told
from racecar_lab.report.verdicts import SUPPORTED

CONFIDENT = "the records do not say so any more; write another sentence in benchmarks: "
WIDTH = 125
"""Letters of a line in docs/."""


def sure(holds: bool, sentence: str) -> None:
    """Refuse a sentence that the records do not bear out."""
    if not holds:
        raise ValueError(CONFIDENT + sentence)


def paragraph(text: str) -> str:
    """Filled to the width of docs/; what begins with "- ", "* " or "1. " is an item of a list."""
    item = re.match(r"[-*] |\d\. ", text)
    indent = " " * len(item[0]) if item else ""
    return fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def in_points(found: Finding) -> str:
    """As "+1.2 (0.3 to 2.1)", with its corrected interval."""
    mean, _, interval = gain_told(found).partition(", ")
    return f"{mean.partition(' ')[0]} ({interval})"


def points(found: Finding) -> float:
    """Its mean gain, in points."""
    assert found.gain is not None
    return 100 * found.gain.mean


def count(findings: Sequence[Finding], verdict: str = SUPPORTED) -> int:
    """How many have this verdict."""
    return sum(one.verdict == verdict for one in findings)


def lower_end(found: Estimate) -> float:
    """The lower end of its interval."""
    return (found.interval() or (found.mean, found.mean))[0]


def signed(value: float) -> str:
    return f"{value:z.1f}".replace("-", "−")


def listed(some: Sequence[str]) -> str:
    """As "a, b and c"."""
    *first, last = some
    return f"{', '.join(first)} and {last}" if first else last


def means(some: Sequence[Estimate]) -> str:
    return listed([signed(one.mean) for one in some])


def span(values: Sequence[float]) -> str:
    return f"{signed(min(values))} to {signed(max(values))}"


def ratios(values: Sequence[float]) -> str:
    """As "1.19 and 1.12"."""
    return listed([f"{one:.2f}" for one in values])


def between(values: Sequence[float]) -> str:
    """As "1.03 to 1.09"."""
    return " to ".join(dict.fromkeys(f"{end:.2f}" for end in (min(values), max(values))))


def shares(values: Sequence[float]) -> str:
    """As "45 to 65 %"."""
    return " to ".join(dict.fromkeys(f"{100 * end:.0f}" for end in (min(values), max(values)))) + " %"


def percent(ratios: Sequence[float]) -> str:
    """What ratios are above 1, as "15 to 18 %"."""
    return shares([one - 1 for one in ratios])

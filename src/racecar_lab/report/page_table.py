"""A table of a page: one form for HTML and Markdown. A cell has its text, and the value that it is sorted by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from racecar_lab.report import words
from racecar_lab.report.statistics import Estimate


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    value: float | None = None
    """What it is sorted by, if it is a number; None sorts last."""
    kind: str = "text"
    """"text", "word" (a short text), "number", "variant" or "verdict"."""
    note: str = ""
    """More about it, in small print."""


@dataclass(frozen=True)
class Column:
    """Head of a column."""

    title: str
    kind: str = "text"


@dataclass(frozen=True)
class Table:
    """Rows under their heads; columns that say nothing are left out."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @staticmethod
    def of(
        caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], keep: Collection[str] = ()
    ) -> Table:
        """A table without the columns that are empty throughout, except those to ``keep``."""
        filled = [
            i
            for i, column in enumerate(columns)
            if column.title in keep or any(row[i].text not in ("", words.NONE) for row in rows)
        ]
        return Table(caption, [columns[i] for i in filled], [[row[i] for i in filled] for row in rows])


def word_cell(text: str) -> Cell:
    """Text that stays on one line, unless it is long."""
    return Cell(text, kind="word" if len(text) <= 32 else "text")


def number_cell(value: float | None, write: Callable[[Any], str]) -> Cell:
    """A number, written by a function."""
    return Cell(words.NONE if value is None else write(value), value, "number")


def mean_cell(estimate: Estimate | None) -> Cell:
    """Mean ± standard deviation."""
    return Cell(words.plus_minus(estimate), None if estimate is None else estimate.mean, "number")

"""A table of a page: one form for HTML and Markdown. pandas' ``to_html`` is not enough: a cell has its text, the value
that it is sorted by, and a note in small print."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from racecar_lab.report import words
from racecar_lab.report.statistics import Estimate


@dataclass(frozen=True)
class Cell:
    """One entry of a table."""

    text: str
    value: float | None = None
    """The number that it is sorted by; None sorts last."""
    kind: str = "text"
    """"text", "word" (a short text), "number", "variant" or "verdict"."""
    note: str = ""
    """More about it, in small print."""


Row = Mapping[str, Cell]
"""Head of the column → entry."""


@dataclass(frozen=True)
class Table:
    """Rows with the same heads."""

    caption: str
    rows: Sequence[Row]

    @staticmethod
    def of(caption: str, rows: Sequence[Row], keep: Collection[str] = ()) -> Table:
        """A table without the columns that are empty throughout, except those to ``keep``."""
        heads = {head for row in rows for head, cell in row.items() if cell.text not in ("", words.NONE)} | {*keep}
        return Table(caption, [{head: cell for head, cell in row.items() if head in heads} for row in rows])

    @property
    def columns(self) -> dict[str, str]:
        """Head of each column → "number", "variant" or "text": how it is aligned, and whether it stays in sight."""
        kinds = {head: {row[head].kind for row in self.rows} for head in (self.rows[0] if self.rows else ())}
        return {head: next((kind for kind in ("number", "variant") if kind in kinds[head]), "text") for head in kinds}


def word_cell(text: str) -> Cell:
    """Text that stays on one line, unless it is long."""
    return Cell(text, kind="word" if len(text) <= 32 else "text")


def number_cell(value: float | None, write: Callable[[Any], str], note: str = "") -> Cell:
    """A number, written by a function."""
    return Cell(words.NONE if value is None else write(value), value, "number", note)


def mean_cell(estimate: Estimate | None) -> Cell:
    """Mean ± standard deviation."""
    return Cell(words.plus_minus(estimate), None if estimate is None else estimate.mean, "number")

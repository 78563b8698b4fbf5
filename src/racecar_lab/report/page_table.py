"""A table of a page, in one form for HTML and Markdown. pandas' ``to_html`` is not enough: a cell has its text, the
value that it is sorted by, and a note in small print."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from racecar_lab.report import words
from racecar_lab.report.statistics import Estimate


@dataclass(frozen=True)
class Cell:
    """One entry of a table: its text, the number it is sorted by, and a note."""

    text: str
    value: float | None = None
    """Number by which rows are sorted when a page is sorted by this column; None sorts last."""
    kind: str = "text"
    """Kind of entry, which decides how it is shown: "text", "word" (a short text), "number", "variant" or "verdict"."""
    note: str = ""
    """More about the entry, shown in small print below it."""


Row = Mapping[str, Cell]
"""A row of a table: head of the column → entry."""


@dataclass(frozen=True)
class Table:
    """A table: its caption, and rows that all have the same columns."""

    caption: str
    rows: Sequence[Row]

    @staticmethod
    def of(caption: str, rows: Sequence[Row], keep: Collection[str] = ()) -> Table:
        """A table without the columns that are empty throughout, except those to ``keep``."""
        heads = {head for row in rows for head, cell in row.items() if cell.text not in ("", words.NONE)} | {*keep}
        return Table(caption, [{head: cell for head, cell in row.items() if head in heads} for row in rows])

    @property
    def columns(self) -> dict[str, str]:
        """Head of each column → "number", "variant" or "text". By this the page decides how a column is aligned, and
        whether it stays in sight when the table is scrolled."""
        kinds = {head: {row[head].kind for row in self.rows} for head in (self.rows[0] if self.rows else ())}
        return {head: next((kind for kind in ("number", "variant") if kind in kinds[head]), "text") for head in kinds}


def word_cell(text: str) -> Cell:
    """A cell with a text that stays on one line; with more than 32 letters it may be broken."""
    return Cell(text, kind="word" if len(text) <= 32 else "text")


def number_cell(value: float | None, write: Callable[[Any], str], note: str = "") -> Cell:
    """A cell with a number, which the function ``write`` turns into text; None becomes a dash."""
    return Cell(words.NONE if value is None else write(value), value, "number", note)


def mean_cell(estimate: Estimate | None) -> Cell:
    """A cell with the mean ± standard deviation of an estimate; None becomes a dash."""
    return Cell(words.plus_minus(estimate), None if estimate is None else estimate.mean, "number")

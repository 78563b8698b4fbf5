"""Print notes and tables to the terminal."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

LONGEST = 500

given: tuple[str, ...] = ()
"""The arguments of the command that runs."""


def command() -> str:
    """The command line that runs, quoted as for a shell."""
    return shlex.join(["racecar", *given])


def one_line(text: str) -> str:
    """A message without line breaks, cut off after ``LONGEST`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 2] + " …"


def note(text: str) -> None:
    """Print a note to stderr."""
    print(f"note: {one_line(text)}", file=sys.stderr)


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Context manager: warnings meant for users (``UserWarning``) are printed as notes, all others are hidden."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        note(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], last: str) -> None:
    """Print a table to a terminal, long cells folded to its width, and a last line below it."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # Text: a name with brackets is no markup
    console = Console()
    console.print(table)
    console.print(Text(last))


def show(head: Sequence[str], rows: Sequence[Sequence[str]], last: str) -> None:
    """Print a table and a last line below it: folded to the width of a terminal, as plain text elsewhere."""
    from racecar.support.table import table

    if sys.stdout.isatty():
        print_table(head, rows, last)
    else:
        print(f"{table(head, rows)}\n{last}")

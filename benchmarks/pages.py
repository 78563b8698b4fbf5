"""Fill a page of docs/ between its marks: what every program that does so has as its command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from racecar.support.files import write_text


def write_page(
    program: str | None, page: Path, made: Callable[[str, Path], str], results: Path = Path("results")
) -> None:
    """Write a page again.

    Args:
        program: its docstring, for --help.
        page: which one, unless --page says otherwise.
        made: from the page's text and the folder of results to the text with its marks filled.
        results: that folder, unless --results says otherwise.
    """
    parser = argparse.ArgumentParser(description=program, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--page", type=Path, default=page)
    asked = parser.parse_args()
    write_text(asked.page, made(asked.page.read_text(), asked.results))

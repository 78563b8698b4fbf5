"""Fill a page of docs/ between its marks, or draw a figure of it: the command line of every program that does so."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from racecar.support.files import write_text
from racecar_lab.report.pictures import save_light


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


def write_figure(program: str | None, results: Path, figure: Path, made: Callable[[Path], Figure]) -> None:
    """Draw a figure of docs/ again.

    Args:
        program: its docstring, for --help.
        results: folder of its records, unless --results says otherwise.
        figure: its file, unless --figure says otherwise.
        made: from that folder to the figure.
    """
    parser = argparse.ArgumentParser(description=program, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--figure", type=Path, default=figure)
    asked = parser.parse_args()
    save_light(made(asked.results), asked.figure)

"""``racecar report``: one page from the records of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from racecar_lab.cli.options import Own

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder that racecar run wrote into, or one of such folders.")
]
Open = Annotated[bool, typer.Option("--open", help="Show the page in a browser.")]


def report(folder: Folder, open_page: Open = False, own_experiments: Own = None) -> None:
    """Make a page of what was run: claims and verdicts, tables, figures. It is written as DIR/report.html, which needs
    nothing else, and as DIR/report.md.

    Example: racecar report out --open
    """
    import webbrowser

    from racecar.support.files import check_folder
    from racecar_lab.experiments import experiments
    from racecar_lab.report import write_report

    known = experiments(own_experiments or ())
    if folder.exists():
        check_folder(folder, "the folder")
    page = write_report(folder, known)
    print(page.html)
    print(page.markdown)
    if open_page:
        webbrowser.open(page.html.absolute().as_uri())
    if page.problems:
        more = f" (and {len(page.problems) - 1} more, see the page)" if len(page.problems) > 1 else ""
        raise ValueError(f"left out: {page.problems[0]}{more}")

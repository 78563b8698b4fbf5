"""``racecar data``: list, check, fetch and make data sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from racecar.support.console import show

if TYPE_CHECKING:
    from racecar_lab.datasets import Source

Folder = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Folder of the data sets. Without it: $RACECAR_DATA, or one in the user's cache."
    ),
]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Data sets, as `racecar data list` names them.")]
SomeNames = Annotated[
    list[str] | None, typer.Argument(metavar="NAME", help="Data sets; without a name: those that are here.")
]

data = typer.Typer(
    help="Data sets: which there are, whether they are here and whole, and how they get here.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@data.command("list", epilog="Example: racecar data list --data ~/data")
def list_data(folder: Folder = None) -> None:
    """List the data sets: what they are, their licence, size, and whether they are here."""
    from racecar_lab.datasets import SOURCES, data_folder

    path = data_folder(folder)
    rows = [
        (source.name, source.title, source.licence, _size(source.size), _fetchable(source), source.here(path))
        for source in SOURCES.values()
    ]
    show(("name", "what", "licence", "size", "can be fetched", "here"), rows, f"Data folder: {path}")


@data.command("check", epilog="Example: racecar data check mnist cifar10")
def check_data(names: SomeNames = None, folder: Folder = None) -> None:
    """Compare sizes and checksums with the published ones, and open every file; status 2 if something is wrong."""
    from racecar.support.progress import bar
    from racecar_lab.datasets import SOURCES, check, data_folder, source

    path = data_folder(folder)
    sources = [source(name) for name in names or SOURCES]
    if not path.is_dir():
        raise ValueError(
            f"there is no data folder {path}: name one by --data or RACECAR_DATA, or racecar data fetch NAME"
        )
    rows: list[tuple[str, str, str]] = []
    problems: list[str] = []
    with bar("check", len(sources)) as advance:
        for data_set in sources:
            advance(0, data_set.name)
            if names or data_set.here(path) != "no":
                result = check(data_set, path)
                problems += result.problems
                rows.append((data_set.name, "wrong" if result.problems else "good", "; ".join(result.notes)))
            else:
                rows.append((data_set.name, "not here", ""))
            advance(1, data_set.name)
    show(("name", "state", "notes"), rows, f"Data folder: {path}")
    for problem in problems:
        _complain(problem)
    if problems:
        raise typer.Exit(2)


@data.command("fetch", epilog="Example: racecar data fetch mnist cifar10 --data ~/data")
def fetch_data(names: Names, folder: Folder = None) -> None:
    """Download data sets, check them and unpack them. What was interrupted goes on where it stopped."""
    from racecar_lab.datasets import DataError, data_folder, fetch, source

    path = data_folder(folder)
    failed = False
    for data_set in [source(name) for name in names]:  # unknown names are refused before anything is fetched
        try:
            state = "fetched into" if fetch(data_set, path) else "was already in"
            print(f"{data_set.name} {state} {path}; {data_set.licence}; {data_set.citation}")
        except DataError as error:
            failed = True
            _complain(str(error))
    if failed:
        raise typer.Exit(2)


@data.command("make", epilog="Example: racecar data make smoke --data ~/data")
def make_data(names: Names, folder: Folder = None) -> None:
    """Compute data sets that are not downloaded, which takes minutes. What is here already is not made again."""
    from racecar_lab.datasets import data_folder, make, source

    path = data_folder(folder)
    for data_set in [source(name) for name in names]:
        state = "made in" if make(data_set, path) else "was already in"
        print(f"{data_set.name} {state} {path}; {data_set.citation}")


def _fetchable(source: Source) -> str:
    """How a data set gets here, for the table: "yes" (it can be fetched), "no", or "made" (it is computed)."""
    return "yes" if source.downloads else "no" if source.make is None else "made"


def _complain(problem: str) -> None:
    """Print a problem on standard error."""
    from racecar.support.console import one_line

    print(f"racecar: {one_line(problem)}", file=sys.stderr)


def _size(size: int | None) -> str:
    """A number of bytes as text."""
    if size is None:
        return "unknown"
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"

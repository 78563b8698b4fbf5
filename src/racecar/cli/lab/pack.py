"""``racecar pack``: the records of a folder in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that racecar run wrote into, by --out.")]


def pack(folder: Folder) -> None:
    """Put the records of a folder into one file, DIR/records.jsonl, a line for each, instead of a file for each.
    Everything that reads records reads it, too. Not while a run writes into the folder.

    Example: racecar pack out/safety
    """
    from racecar.lab.running.packed import NAME
    from racecar.lab.running.packed import pack as pack_records
    from racecar.support.files import check_folder

    if folder.exists():
        check_folder(folder, "the folder")
    print(f"{pack_records(folder)} records packed into {folder / NAME}")

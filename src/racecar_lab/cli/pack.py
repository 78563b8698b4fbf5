"""``racecar pack``: the records of a folder in one file, and its arrays in another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from racecar_lab.cli.options import Own

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that racecar run wrote into, by --out.")]


Figures = Annotated[
    bool,
    typer.Option("--figures", help="Pack arrays, too: those that the page's figures show. The others are removed."),
]


Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without", metavar="PART", help="Leave out curves, or tables, which are most of a record; repeatable."
    ),
]


def pack(folder: Folder, figures: Figures = False, without: Without = None, own: Own = None) -> None:
    """Put the records of a folder into one file, DIR/records.jsonl, a line for each, instead of a file for each; with
    --figures also the arrays that the page needs, into DIR/arrays.safetensors. Everything that reads the one form reads
    the other, too. Not while a run writes into the folder.

    Example: racecar pack out/safety
    """
    from racecar.support.files import check_folder
    from racecar_lab.running import packed, packed_arrays

    for name in without or ():
        if name not in packed.LEAVABLE:
            raise ValueError(
                f"--without {name}: a pack can do without {' or '.join(packed.LEAVABLE)}, and nothing else"
            )
    if folder.exists():
        check_folder(folder, "the folder")
    print(f"{packed.pack(folder, without or ())} records packed into {folder / packed.NAME}")
    if figures:
        from racecar_lab.experiments import experiments
        from racecar_lab.report.shown import shown_arrays

        count = packed_arrays.pack_arrays(folder, shown_arrays(folder, experiments(own or ())))
        print(f"{count} arrays packed into {folder / packed_arrays.NAME}")

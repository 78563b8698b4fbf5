"""Records from a folder: what is broken is named, the rest is not lost."""

from __future__ import annotations

from pathlib import Path

from racecar.lab import packed
from racecar.lab.results import Run, Store

SHOWN = 5
"""Folders that a message names."""


def read_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """All runs whose records can be read, and a line for each one that cannot.

    Raises:
        ValueError: there is none to be read.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: name the one that racecar run wrote into")
    runs, problems = Store(folder).read()
    if not runs and not problems:
        raise ValueError(_advice(folder))
    if not runs:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ValueError(f"no record can be read: {problems[0]}{more}")
    return runs, problems


def _advice(folder: Path) -> str:
    """What to do about a folder without records."""
    found = {path.parent.parent for path in folder.glob("*/records/*.json")}
    inside = sorted(found | {path.parent for path in folder.glob(f"*/{packed.NAME}")})
    if inside:
        names = ", ".join(one.name for one in inside[:SHOWN])
        more = f" and {len(inside) - SHOWN} more" if inside[SHOWN:] else ""
        return f"{folder} holds no records itself, but folders with some: make a page of each one: {names}{more}"
    if folder.name == "records" and any(folder.glob("*.json")):
        return f"{folder} holds the records themselves: name the folder that it is in, {folder.parent}"
    return f"there are no records in {folder / 'records'}: make some with racecar run NAME --out {folder}"

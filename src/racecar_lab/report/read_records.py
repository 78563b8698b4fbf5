"""Reading of the runs in a folder; those that can be read are used even if others are broken."""

from __future__ import annotations

import shlex
from pathlib import Path

from racecar_lab.running.published import RUNS
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run


def read_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """All runs whose records can be read, and a message for each record that cannot.

    Raises:
        ValueError: no record can be read.
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


def inside(folder: Path) -> list[Path]:
    """The subfolders that hold records; none if the folder holds records itself."""
    if any((folder / "records").glob("*.json")) or (folder / RUNS).exists():
        return []
    folders = {path.parent.parent for path in folder.glob("*/records/*.json")}
    return sorted(folders | {path.parent for path in folder.glob(f"*/{RUNS}")})


def _advice(folder: Path) -> str:
    """The error message for a folder without records."""
    if folder.name == "records" and any(folder.glob("*.json")):
        return f"{folder} holds the records themselves: name the folder that it is in, {folder.parent}"
    command = f"racecar run NAME --out {shlex.quote(str(folder))}"
    return f"there are no records in {folder / 'records'}: make some with {command}"

"""Records from a folder: what is broken is named, the rest is not lost."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from racecar.lab import packed
from racecar.lab.record import parse_record, read_record
from racecar.lab.results import Run, Store


def read_runs(folder: Path) -> tuple[list[Run], list[str]]:
    """All runs whose records can be read, and a line for each one that cannot.

    Raises:
        ValueError: there is none to be read.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: name the one that racecar run wrote into")
    singles = {path.stem: path for path in sorted((folder / "records").glob("*.json"))}
    sources: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        *((str(path), partial(read_record, path)) for path in singles.values()),
        *((where, partial(parse_record, line, where)) for where, line in packed.lines(folder)),
    ]
    if not sources:
        raise ValueError(_advice(folder))
    store, runs, problems = Store(folder), [], []
    for i, (where, read) in enumerate(sources):
        try:
            record = read()
            check(record)
        except ValueError as error:
            text = str(error)
            problems.append(text if where in text else f"{where} {text}; delete it to train that stage again")
        else:
            if i < len(singles) or record["id"] not in singles:  # a file of its own is newer than the pack
                runs.append(Run(record, store))
    if not runs:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ValueError(f"no record can be read: {problems[0]}{more}")
    return runs, problems


def inside(folder: Path) -> list[Path]:
    """Folders of records right below a folder that holds none itself."""
    if any((folder / "records").glob("*.json")) or (folder / packed.NAME).exists():
        return []
    found = {path.parent.parent for path in folder.glob("*/records/*.json")}
    return sorted(found | {path.parent for path in folder.glob(f"*/{packed.NAME}")})


def _advice(folder: Path) -> str:
    """What to do about a folder without records."""
    if folder.name == "records" and any(folder.glob("*.json")):
        return f"{folder} holds the records themselves: name the folder that it is in, {folder.parent}"
    command = f"racecar run NAME --out {shlex.quote(str(folder))}"
    return f"there are no records in {folder / 'records'}: make some with {command}"


def check(record: Mapping[str, Any]) -> None:
    """Refuse a record whose parts are not what a page needs them to be."""
    for name in ("experiment", "variant", "stage", "status"):
        if not isinstance(record[name], str):
            raise ValueError(f"has no word for {name}: {record[name]!r}")
    if not isinstance(record["seed"], int):
        raise ValueError(f"has no whole number for seed: {record['seed']!r}")
    for name in ("config", "tuned", "metrics", "cost", "made", "tables", "curves"):
        if not isinstance(record.get(name, {}), Mapping):
            raise ValueError(f"has no object for {name}: {record[name]!r}")
    also = record.get("also", [])
    if not isinstance(also, list) or not all(
        isinstance(one, Mapping) and isinstance(one.get(name), Mapping) for one in also for name in ("config", "tuned")
    ):
        raise ValueError(f"has no settings for also: {also!r}")
    numbers = {
        "coefficient": record["coefficient"],
        **{f"metrics {name}": value for name, value in record["metrics"].items()},
        **{f"cost {name}": value for name, value in record["cost"].items()},
    }
    for name, values in record.get("curves", {}).items():
        if not isinstance(values, list):
            raise ValueError(f"has no list for curve {name}: {values!r}")
        numbers |= {f"curve {name}": value for value in values if not _is_number(value)}
    for name, value in numbers.items():
        if not _is_number(value):
            raise ValueError(f"has no finite number for {name}: {value!r}")


def _is_number(value: Any) -> bool:
    """A finite one, or null."""
    return value is None or (isinstance(value, (int, float)) and math.isfinite(value))

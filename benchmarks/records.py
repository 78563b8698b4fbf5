"""Records of benchmarks in few files: one with a line for each, and a page that shows those of `racecar bench`.

    python -m benchmarks.records [--results results/bench]

What `racecar bench --out` and the programs of benchmarks/ wrote into the folder is taken into them, and removed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.bench.tables import markdown
from racecar.support.files import write_text

PACK, PAGE = "benchmarks.jsonl", "records.md"

Records = Mapping[str, dict[str, Any]]
"""By name."""


def as_module(name: str) -> str:
    """The command line of a program that runs as a module."""
    return shlex.join(["python", "-m", name, *sys.argv[1:]])


def read(folder: Path, pattern: str = "*") -> dict[str, dict[str, Any]]:
    """Records whose names match a pattern, those with more in their names first; one in a file of its own is newer than
    one of the pack."""
    pack = folder / PACK
    lines = pack.read_text(encoding="utf-8").splitlines() if pack.exists() else []
    by_name = {record.pop("name"): record for record in map(json.loads, lines)}
    by_name |= {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}
    names = sorted(by_name, key=lambda name: f"{name}.")  # "-" comes before "."
    return {name: by_name[name] for name in names if fnmatchcase(name, pattern)}


def page(records: Records) -> str:
    """All that `racecar bench` wrote, as `python -m benchmarks.bench --show` prints it."""
    shown = {name: record for name, record in records.items() if {"models", "settings"} <= set(record)}
    parts = [f"## {name}\n\n{markdown(record)}" for name, record in shown.items()]
    return "\n\n".join(["# Records of racecar bench", *parts]) + "\n"


def pack(folder: Path, shown: bool = True) -> None:
    """Write the two files, or without ``shown`` the first alone, then remove the others."""
    records = read(folder)
    write_text(folder / PACK, "".join(json.dumps({"name": name, **record}) + "\n" for name, record in records.items()))
    if shown:
        write_text(folder / PAGE, page(records))
    for path in folder.glob("*.json"):
        path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/bench"))
    pack(parser.parse_args().results)


if __name__ == "__main__":
    main()

"""Records in one file, a line for each: thousands of small files are more than a repository wants."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from racecar.files import write_atomically
from racecar.lab.record import parse_record, read_record

NAME = "records.jsonl"
_known: dict[Path, tuple[tuple[int, int], dict[str, dict[str, Any]]]] = {}
"""Path → time and size of the file that was read last, and what was in it."""


def lines(folder: Path) -> Iterator[tuple[str, str]]:
    """Where each line of a folder's pack is, and the line; nothing if there is none."""
    path = folder / NAME
    if path.exists():
        for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"line {i} of {path}", line


def packed(folder: Path) -> Mapping[str, dict[str, Any]]:
    """The records of a folder's pack by id; read again when the file changes."""
    path = (folder / NAME).absolute()
    try:
        stat = path.stat()
    except FileNotFoundError:
        return {}
    stamp = stat.st_mtime_ns, stat.st_size
    if path not in _known or _known[path][0] != stamp:
        records = (parse_record(line, where) for where, line in lines(folder))
        _known[path] = stamp, {str(one["id"]): one for one in records}
    return _known[path][1]


def pack(folder: Path) -> int:
    """Put the single records of a folder into its pack, sorted by id, and remove them; returns how many they were.

    The pack is in its place before the first of them goes: a process that is killed in between leaves some in both, and
    packing again is all it takes. Of a record in both, the single one is the newer.
    """
    singles = {path: path.read_bytes() for path in sorted((folder / "records").glob("*.json"))}
    records = dict(packed(folder))
    for path in singles:
        record = read_record(path)
        if record["id"] != path.stem:
            raise ValueError(f"{path} is the record of {record['id']}; delete it to train that stage again")
        records[path.stem] = record
    if not records:
        raise ValueError(f"there are no records in {folder}: name the folder that racecar run wrote into")
    if singles:
        with write_atomically(folder / NAME) as file:
            for id in sorted(records):
                text = json.dumps(records[id], ensure_ascii=False, allow_nan=False, separators=(",", ":"))
                file.write(f"{text}\n".encode())
    for path, content in singles.items():
        if path.read_bytes() == content:  # else somebody changed it meanwhile
            path.unlink()
    return len(singles)

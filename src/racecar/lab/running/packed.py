"""Records in one file, a line for each: thousands of small files are more than a repository wants.

What all of them have in common stands once, in the first line, as ``{"shared": …}``; every other line has the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from racecar.lab.running.record import parse_record, read_record
from racecar.support.files import write_atomically

NAME = "records.jsonl"
Packed = Mapping[str, dict[str, Any] | str]
"""Records by id, or what is wrong with them; one without an id that can be read stands under its place in the file."""
_ID = re.compile(rb'"id":\s*"([^"\\]+)"')
_known: dict[Path, tuple[tuple[int, int], Packed]] = {}
"""Path → time and size of the file that was read last, and what was in it."""


def packed(folder: Path) -> Packed:
    """What a folder's pack holds; read again when the file changes."""
    path = (folder / NAME).absolute()
    try:
        stat = path.stat()
    except FileNotFoundError:
        return {}
    stamp = stat.st_mtime_ns, stat.st_size
    if path not in _known or _known[path][0] != stamp:
        _known[path] = stamp, dict(_read(folder / NAME))
    return _known[path][1]


def _read(path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    common: dict[str, Any] = {}
    for i, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if i == 1 and (shared := _shared_line(line)) is not None:
            common = shared
        elif line.strip():
            where, found = f"line {i} of {path}", _ID.search(line)
            try:
                record = parse_record(_whole(line, common), where)
                yield record["id"], record
            except ValueError as error:
                yield found[1].decode(errors="replace") if found else where, str(error)


def pack(folder: Path) -> int:
    """Put the single records of a folder into its pack, sorted by id, and remove them; returns how many they were.

    The pack is in its place before the first of them goes: a process that is killed in between leaves some in both, and
    packing again is all it takes. Of a record in both, the single one is the newer.
    """
    singles = {path: path.read_bytes() for path in sorted((folder / "records").glob("*.json"))}
    records = {}
    for id, one in packed(folder).items():
        if isinstance(one, str):
            raise ValueError(one)
        records[id] = one
    for path in singles:
        records[path.stem] = read_record(path)
    if not records:
        raise ValueError(f"there are no records in {folder}: name the folder that racecar run wrote into")
    if singles:
        with write_atomically(folder / NAME) as file:
            common = _shared(list(records.values()))
            for one in ({"shared": common}, *(_without(records[id], common) for id in sorted(records))):
                text = json.dumps(one, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
                file.write(f"{text}\n".encode())
    for path, content in singles.items():
        if path.read_bytes() == content:  # else somebody changed it meanwhile
            path.unlink()
    return len(singles)


def _shared(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all records have, with the same value; inside of dicts, too."""
    first, found = records[0], {}
    for name, value in first.items():
        others = [record.get(name) for record in records[1:]]
        if isinstance(value, dict) and all(isinstance(other, dict) for other in others):
            found[name] = _shared([record[name] for record in records])
        elif name != "id" and all(name in record for record in records) and all(other == value for other in others):
            found[name] = value
    return found


def _without(record: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """A record without what is shared."""
    left: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict) and isinstance(common.get(name), dict):
            rest = _without(value, common[name])
            left |= {name: rest} if rest else {}
        elif name not in common:
            left[name] = value
    return left


def _shared_line(line: bytes) -> dict[str, Any] | None:
    """What a first line says that all records share; None if it is no such line."""
    try:
        shared = json.loads(line)["shared"]
    except (ValueError, KeyError, TypeError):
        return None
    return shared if isinstance(shared, dict) else None


def _whole(line: bytes, common: Mapping[str, Any]) -> str | bytes:
    """A line with what is shared; as it is where it cannot be read, which its reader will say."""
    try:
        return json.dumps(_with(json.loads(line), common)) if common else line
    except (ValueError, TypeError, AttributeError):
        return line


def _with(left: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    """A record with what is shared; the order of its parts is lost."""
    whole = {**common, **left}
    for name, value in left.items():
        if isinstance(value, dict) and isinstance(common.get(name), dict):
            whole[name] = _with(value, common[name])
    return whole

"""Records in one file that can be read line by line: thousands of small files are more than a repository wants.

The first line has what all records share; a field inside of another is named as "config.lr". Then comes a heading for
each setting, which names the values of its runs and the order of all fields, and a line of values for each run::

    {"shared": {"format": 1, "experiment": "peaks", …}}
    {"group": {"variant": "RR", "config.lr": 0.001, …}, "columns": ["id", "seed", …], "fields": ["format", "id", …]}
    ["000b4b5249f0be11", 0, …]

A heading without columns has those of the one before it, and says what of its setting differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from racecar.support.files import write_atomically
from racecar_lab.running.record import CHECKSUM, check_record, read_record, unreadable, with_checksum

NAME = "records.jsonl"
Packed = Mapping[str, dict[str, Any] | str]
"""Records by id, or what is wrong with them; one without an id that can be read stands under its place in the file."""
_OWN = ("id", "seed", "parent", "metrics", "curves", "tables", "cost", "status", "note", "dead", "sha256", CHECKSUM)
"""What each run has for itself; the rest is its setting."""
_ID = re.compile(rb'\["([^"\\]+)"')
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
        _known[path] = stamp, dict(_read(path.read_bytes().split(b"\n"), folder / NAME))
    return _known[path][1]


LEAVABLE = ("curves", "tables")
"""What a pack can do without: most of a record's size, and no verdict depends on it."""


def pack(folder: Path, without: Sequence[str] = ()) -> int:
    """Put the single records of a folder into its pack and remove them; returns how many they were. What ``without``
    names, some of ``LEAVABLE``, is left empty, in records that were packed before, too.

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
    lighter = {id: {**one, **{name: {} for name in without}} for id, one in records.items()}
    if singles or lighter != records:
        write_pack(folder, lighter)
    for path, content in singles.items():
        if path.read_bytes() == content:  # else somebody changed it meanwhile
            path.unlink()
    return len(singles)


def write_pack(folder: Path, records: Mapping[str, dict[str, Any]]) -> None:
    """Write records, by id, as the pack of a folder, once it is sure that they can be read from it."""
    lines = [_text(line).encode() for line in _lines([_flat(with_checksum(records[id])) for id in sorted(records)])]
    for id, one in _read(lines, folder / NAME):
        if id not in records or _text(one, sort=True) != _text(records[id], sort=True):
            raise ValueError(f"record {id} of {folder} cannot be packed: it has names that no record has")
    with write_atomically(folder / NAME) as file:
        file.writelines(line + b"\n" for line in lines)


@dataclass
class _Reading:
    """What the headings so far say of the lines that follow."""

    shared: dict[str, Any] | None = None
    group: dict[str, Any] | None = None
    columns: Sequence[str] = ()
    fields: Sequence[str] = ()
    shape: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """A record's own fields in their order; those inside of one, with their whole names."""

    def head(self, line: bytes) -> None:
        """Take a heading. Where it cannot be read, neither can the records below, until all is said again."""
        group, self.group = self.group, None
        head = dict(json.loads(line))
        if self.shared is None:
            self.shared = _object(head, "shared")
        elif "columns" in head:
            self.columns, self.fields = _names(head, "columns"), _names(head, "fields")
            self.group = _object(head, "group")
        elif group is not None:
            self.group = {**group, **_object(head, "group")}
        if self.group is not None and self.shared is not None:
            there = self.shared.keys() | self.group.keys() | set(self.columns)
            self.shape = _shape([name for name in self.fields if name in there])

    def record(self, values: Sequence[Any]) -> dict[str, Any]:
        """A line of values as a record."""
        if self.shared is None or self.group is None:
            raise ValueError("it stands below no heading that can be read")
        if len(values) != len(self.columns):
            raise ValueError(f"it has {len(values)} values for {len(self.columns)} columns")
        flat = {**self.shared, **self.group, **dict(zip(self.columns, values, strict=True))}
        return {
            name: {part: flat[whole] for part, whole in inside.items()} if inside else flat[name]
            for name, inside in self.shape.items()
        }


def _object(head: Mapping[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(head.get(name), dict):
        raise ValueError(f"a heading without {name}")
    return dict(head[name])


def _names(head: Mapping[str, Any], name: str) -> list[str]:
    if not isinstance(head.get(name), list) or not all(isinstance(one, str) for one in head[name]):
        raise ValueError(f"a heading without {name}")
    return list(head[name])


def _read(lines: Sequence[bytes], path: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    reading = _Reading()
    for i, line in enumerate(lines, 1):
        where, found = f"line {i} of {path}", _ID.match(line)
        try:
            if (record := _take(line, reading, where)) is not None:
                yield record["id"], record
        except ValueError as error:
            yield found[1].decode(errors="replace") if found else where, str(error)


def _take(line: bytes, reading: _Reading, where: str) -> dict[str, Any] | None:
    """The record of a line; None if it has none."""
    try:
        if not line.startswith(b"["):
            if line.strip():
                reading.head(line)
            return None
        record = reading.record(json.loads(line))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(unreadable(where, error)) from None
    return check_record(record, where)


def _lines(records: Sequence[dict[str, Any]]) -> Iterator[Any]:
    """The lines of a pack: settings in the order of their headings, runs of one by their seeds."""
    texts = [{name: _text(value) for name, value in one.items()} for one in records]
    shared = {name for name, text in texts[0].items() if name != "id" and all(one.get(name) == text for one in texts)}
    yield {"shared": {name: records[0][name] for name in records[0] if name in shared}}
    groups: dict[tuple[tuple[str, ...], str], list[dict[str, Any]]] = {}
    for one in records:
        setting = {name: value for name, value in one.items() if name not in shared and not _is_own(name)}
        groups.setdefault((tuple(one), _text(setting)), []).append(one)
    known: tuple[str, ...] = ()
    before: dict[str, Any] = {}
    for (fields, text), some in sorted(groups.items(), key=lambda group: group[0]):
        setting = json.loads(text)
        columns = ["id", *(name for name in fields if name != "id" and _is_own(name) and name not in shared)]
        if fields == known:
            yield {"group": {name: value for name, value in setting.items() if _text(value) != _text(before[name])}}
        else:
            yield {"group": setting, "columns": columns, "fields": fields}
        yield from ([one[name] for name in columns] for one in sorted(some, key=lambda one: (one["seed"], one["id"])))
        known, before = fields, setting


def _is_own(name: str) -> bool:
    """Whether a field says something of one run; that its curves are taken at the same epochs does not."""
    return name == "made.finished" or (name.partition(".")[0] in _OWN and name != "curves.epoch")


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the fields of its parts beside its own, as "config.lr"."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        inside = isinstance(value, dict) and value
        flat |= {f"{name}.{part}": one for part, one in value.items()} if inside else {name: value}
    return flat


def _shape(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Of the record that ``_flat`` was given, from the names of its fields."""
    shape: dict[str, dict[str, str]] = {}
    for name in names:
        whole, dot, part = name.partition(".")
        inside = shape.setdefault(whole, {})
        if dot:
            inside[part] = name
    return shape


def _text(value: Any, sort: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort)

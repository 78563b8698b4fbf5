"""One record as it lies in a file, checked: whatever is wrong with it, the message names the file and the remedy."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = 1
NEEDED = ("id", "experiment", "variant", "coefficient", "seed", "stage", "config", "metrics", "status", "cost", "made")
OTHER_DATA = "other-data"
PURPOSES = {
    "": "",
    "quick": "quick runs: no evidence",
    "search": "runs of a search: no evidence",
    OTHER_DATA: "runs on other data than the published: no evidence",
}
"""What a result is made for, and how pages mark it: evidence, to see that it works, to choose settings, to see what
other files than the published ones give. Only the first is judged."""
_WORDS = ("id", "experiment", "variant", "stage", "status")
_OBJECTS = ("config", "tuned", "metrics", "cost", "made", "tables", "curves", "sha256")
CHECKSUM = "checksum"
"""The field of a file that says what all others must be."""
_REMEDY = "delete it to train that stage again"


def purpose_of(command: str) -> str:
    """What a command makes results for."""
    words = command.split()
    return "search" if words[1:2] == ["search"] else "quick" if "--quick" in words else ""


def read_record(path: Path) -> dict[str, Any]:
    """One record, from a file of its own, which has its id for a name."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(unreadable(str(path), error)) from None
    record = parse_record(text, str(path))
    if record["id"] != path.stem:
        raise ValueError(f"{path} is the record of {record['id']}; {_REMEDY}")
    return record


def parse_record(text: str, where: str) -> dict[str, Any]:
    """One record, from its text.

    Args:
        where: what to delete if it is none.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(unreadable(where, error)) from None
    return check_record(record, where)


def check_record(record: Any, where: str) -> dict[str, Any]:
    """What a text or a line held, if it is a record."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(
            f"{where} is no record of format {FORMAT}, but of another version of racecar or none; {_REMEDY}"
        )
    missing = [name for name in NEEDED if name not in record]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}; {_REMEDY}")
    if problem := wrong(record):
        raise ValueError(f"{where} {problem}; {_REMEDY}")
    written = record.pop(CHECKSUM, None)
    if written is not None and written != _checksum(record):
        raise ValueError(f"{where} is damaged, its checksum does not fit; {_REMEDY}")
    return record


def with_checksum(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it goes into a file. Who reads it checks that and takes it off again; older records have none."""
    return {**record, CHECKSUM: _checksum(json.loads(json.dumps(record, allow_nan=False)))}


def _checksum(record: Mapping[str, Any]) -> str:
    """Of a record as JSON gives it back, its fields in any order: the beginning of the SHA-256."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def wrong(record: Mapping[str, Any]) -> str:
    """The first field that is not what its readers need it to be, as "has no word for stage: 3"; empty if all are."""
    also = record.get("also", [])
    if not isinstance(also, list) or not all(isinstance(one, Mapping) for one in also):
        return f"has no settings for also: {also!r}"
    words = [(name, record[name]) for name in _WORDS]
    objects = [(name, record.get(name, {})) for name in _OBJECTS]
    objects += [(f"also {name}", one.get(name)) for one in also for name in ("config", "tuned")]
    for what, values, kind in (("word", words, str), ("object", objects, Mapping)):
        for name, value in values:
            if not isinstance(value, kind):
                return f"has no {what} for {name}: {value!r}"
    if not isinstance(record["seed"], int) or isinstance(record["seed"], bool):
        return f"has no whole number for seed: {record['seed']!r}"
    if not isinstance(record.get("parent"), str | None):
        return f"has no word for parent: {record['parent']!r}"
    for one in (record, *also):
        if one.get("purpose", "") not in tuple(PURPOSES):  # a list, which a dict cannot look up, may be there
            return f"has an unknown purpose: {one['purpose']!r}"
    return _no_number(record)


def _no_number(record: Mapping[str, Any]) -> str:
    """The first of its numbers that is none; null stands for one that was not finite, but not in a setting."""
    for tuned in (record.get("tuned", {}), *(one["tuned"] for one in record.get("also", []))):
        for name, value in tuned.items():
            if value is None or not _is_number(value):
                return f"has no finite number for tuned {name}: {value!r}"
    if not _is_number(record["coefficient"]):
        return f"has no finite number for coefficient: {record['coefficient']!r}"
    for part in ("metrics", "cost"):
        for name, value in record[part].items():
            if not _is_number(value):
                return f"has no finite number for {part} {name}: {value!r}"
    for name, values in record.get("curves", {}).items():
        if not isinstance(values, list):
            return f"has no list for curve {name}: {values!r}"
        for value in values:
            if not _is_number(value):
                return f"has no finite number for curve {name}: {value!r}"
    return ""


def _is_number(value: Any) -> bool:
    """A finite one, or null."""
    return value is None or (isinstance(value, (int, float)) and abs(value) <= sys.float_info.max)


def unreadable(where: str, error: Exception) -> str:
    """That something is no record, and what to do about it."""
    return f"{where} is no record that can be read ({error}); {_REMEDY}"

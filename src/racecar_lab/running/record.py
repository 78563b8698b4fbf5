"""The record of one finished stage, and the checks that it passes whenever it is read from a file."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = 3
"""The version of the format of records; records with another one are refused."""
OTHER_DATA = "other-data"
PURPOSES = {
    "": "",
    "quick": "quick runs: no evidence",
    "search": "runs of a search: no evidence",
    OTHER_DATA: "runs on other data than the published: no evidence",
}
"""Purpose of a result → how pages mark it. "" is evidence, and only that is judged; "quick" is a short run that shows
that everything works; "search" serves to choose settings; OTHER_DATA is a run on files other than the published."""
FIELDS: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "experiment": str,
    "variant": str,
    "weight": (int, float, type(None)),
    "seed": int,
    "stage": str,
    "task": str,
    "regularised": bool,
    "parent": (str, type(None)),
    "purpose": str,
    "config": Mapping,
    "tuned": Mapping,
    "metrics": Mapping,
    "curves": Mapping,
    "tables": Mapping,
    "cost": Mapping,
    "status": str,
    "note": str,
    "dead": (list, type(None)),
    "other_data": list,
    "made": Mapping,
    "sha256": Mapping,
}
"""Every field of a record, with the type of its value:

* parent: the id of the stage that this one started from;
* config: the settings that the user gave, the same for all variants; tuned: those that a search chose for this variant,
  which replace them;
* metrics, cost: a number for each name; curves: a list of numbers; tables: any JSON value;
* status: "finished" or "diverged"; dead: layers whose input is always zero, None if this was not checked;
* other_data: data files that are not the published ones;
* made: command, commit, versions, device, time; "asked_by": the command that added the record for another setting;
* sha256: checksums of the run's files of weights and arrays."""
CHECKSUM = "checksum"
"""The field of a record's file that holds the checksum of all its other fields."""
_REMEDY = "delete it to train that stage again"


def read_record(path: Path) -> dict[str, Any]:
    """The record in a file, whose name begins with the record's id."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no record that can be read ({error}); {_REMEDY}") from None
    check_record(record, str(path))
    if record.pop(CHECKSUM, None) != _checksum(record):
        raise ValueError(f"{path} is damaged, its checksum does not fit; {_REMEDY}")
    if record["id"] != path.stem.partition("-")[0]:
        raise ValueError(f"{path} is the record of {record['id']}; {_REMEDY}")
    return dict(record)


def with_checksum(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with its checksum, as it is written into a file."""
    return {**record, CHECKSUM: _checksum(json.loads(json.dumps(record, allow_nan=False)))}


def _checksum(record: Mapping[str, Any]) -> str:
    """The checksum of a record that has been read from JSON: the beginning of a SHA-256. Key order does not matter."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_record(record: Any, where: str) -> None:
    """Raise a ValueError if something is no valid record; the message names ``where`` it is from."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(
            f"{where} is no record of format {FORMAT}, but of another version of racecar or none; {_REMEDY}"
        )
    if missing := [name for name in FIELDS if name not in record]:
        raise ValueError(f"{where} lacks {', '.join(missing)}; {_REMEDY}")
    if problem := wrong(record):
        raise ValueError(f"{where} {problem}; {_REMEDY}")


def wrong(record: Mapping[str, Any]) -> str:
    """The first problem of a record, such as "has another type for seed: 'one'"; empty if there is none."""
    for name, kind in FIELDS.items():
        value = record[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            return f"has another type for {name}: {value!r:.80}"
    if record["purpose"] not in PURPOSES:
        return f"has an unknown purpose: {record['purpose']!r}"
    numbers = {"weight": record["weight"]}
    numbers |= {f"{part} {name}": value for part in ("metrics", "cost") for name, value in record[part].items()}
    for name, values in record["curves"].items():
        if not isinstance(values, list):
            return f"has no list for curve {name}: {values!r:.80}"
        numbers |= {f"curve {name}, {i}": value for i, value in enumerate(values)}
    for name, value in numbers.items():
        if not (value is None or _is_number(value)):  # null is a number that was not finite
            return f"has no finite number for {name}: {value!r:.80}"
    for name, value in record["tuned"].items():
        if not _is_number(value):
            return f"has no finite number for tuned {name}: {value!r:.80}"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max

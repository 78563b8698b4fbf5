"""The record of one finished stage, and the checks that it passes whenever it is read from a file."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FORMAT = 2
"""Of records. There is one: what an older racecar wrote is refused."""
OTHER_DATA = "other-data"
PURPOSES = {
    "": "",
    "quick": "quick runs: no evidence",
    "search": "runs of a search: no evidence",
    OTHER_DATA: "runs on other data than the published: no evidence",
}
"""What a result is made for, and how pages mark it: evidence, to see that it works, to choose settings, to see what
other files than the published ones give. Only the first is judged."""
FIELDS: dict[str, type | tuple[type, ...]] = {
    "id": str,
    "experiment": str,
    "variant": str,
    "coefficient": (int, float, type(None)),
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
* config: the settings as the user gave them, for all variants alike; tuned: what a search chose for this one instead;
* metrics, cost: a number for each name; curves: a list of numbers; tables: whatever JSON can hold;
* status: "finished" or "diverged"; dead: layers that see nothing but zeros, None where nobody looked;
* other_data: files of the data that are not the published ones;
* made: command, commit, versions, device, time; "asked_by": the command that found the result there under this setting;
* sha256: of the files of weights and arrays that belong to it."""
CHECKSUM = "checksum"
"""The field of a file that says what all others must be."""
_REMEDY = "delete it to train that stage again"


def read_record(path: Path) -> dict[str, Any]:
    """One record from a file of its own, whose name begins with the record's id."""
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
    """A record as it goes into a file of its own."""
    return {**record, CHECKSUM: _checksum(json.loads(json.dumps(record, allow_nan=False)))}


def _checksum(record: Mapping[str, Any]) -> str:
    """Of a record as JSON gives it back, its fields in any order: the beginning of the SHA-256."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_record(record: Any, where: str) -> None:
    """Refuse what is no record, with the place where it was found."""
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(
            f"{where} is no record of format {FORMAT}, but of another version of racecar or none; {_REMEDY}"
        )
    if missing := [name for name in FIELDS if name not in record]:
        raise ValueError(f"{where} lacks {', '.join(missing)}; {_REMEDY}")
    if problem := wrong(record):
        raise ValueError(f"{where} {problem}; {_REMEDY}")


def wrong(record: Mapping[str, Any]) -> str:
    """The first field that its readers could not use, as "has no number for seed: 'one'"; empty if there is none."""
    for name, kind in FIELDS.items():
        value = record[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            return f"has another type for {name}: {value!r:.80}"
    if record["purpose"] not in PURPOSES:
        return f"has an unknown purpose: {record['purpose']!r}"
    numbers = {"coefficient": record["coefficient"]}
    numbers |= {f"{part} {name}": value for part in ("metrics", "cost") for name, value in record[part].items()}
    for name, values in record["curves"].items():
        if not isinstance(values, list):
            return f"has no list for curve {name}: {values!r:.80}"
        numbers |= {f"curve {name}, {i}": value for i, value in enumerate(values)}
    for name, value in numbers.items():
        if not (value is None or _is_number(value)):  # null stands for a number that was not finite
            return f"has no finite number for {name}: {value!r:.80}"
    for name, value in record["tuned"].items():
        if not _is_number(value):
            return f"has no finite number for tuned {name}: {value!r:.80}"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max

"""One record as it lies in a file, checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FORMAT = 1
NEEDED = ("id", "experiment", "variant", "coefficient", "seed", "stage", "config", "metrics", "status", "cost", "made")


def read_record(path: Path) -> dict[str, Any]:
    """One record, from a file of its own."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ValueError(_unreadable(str(path), error)) from None
    return parse_record(text, str(path))


def parse_record(text: str, where: str) -> dict[str, Any]:
    """One record, from its text.

    Args:
        where: what to delete if it is none.
    """
    try:
        record = json.loads(text)
    except ValueError as error:
        raise ValueError(_unreadable(where, error)) from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise ValueError(
            f"{where} is no record of format {FORMAT}, but of another version of racecar or none; "
            "delete it to train that stage again"
        )
    missing = [name for name in NEEDED if name not in record]
    if missing:
        raise ValueError(f"{where} lacks {', '.join(missing)}; delete it to train that stage again")
    return record


def _unreadable(where: str, error: Exception) -> str:
    return f"{where} is no record that can be read ({error}); delete it to train that stage again"

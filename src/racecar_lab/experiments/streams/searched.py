"""What the searches of published records tried: it lies beside them, a line for each search, and not as records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from racecar_lab.experiments.streams.cells import Where, in_order
from racecar_lab.experiments.streams.transfer import SettingKey, Tried

if TYPE_CHECKING:
    from racecar_lab.running.run import Run

SEARCHES = "tuned.jsonl"
"""As ``benchmarks.publish`` names it."""


def kept_beside(runs: Sequence[Run]) -> dict[Where, dict[str, Tried]]:
    """Stream and net → method → what was tried, from the file in the folder of the runs; empty where there is none."""
    folder = next((Path(one) for run in runs if (one := getattr(run.store, "folder", None)) is not None), None)
    if folder is None or not (folder / SEARCHES).is_file():
        return {}
    lines = [json.loads(line) for line in (folder / SEARCHES).read_text(encoding="utf-8").splitlines()]
    return in_order(dict(map(searched, (one for one in lines if one["experiment"] == "streams"))))


def searched(content: Mapping[str, Any]) -> tuple[Where, dict[str, Tried]]:
    """The same of what one ``racecar search`` wrote."""
    where = Where.of(content["config"])
    methods = {name: one["tried"] for name, one in content["variants"].items()}
    first = f"first_{where.judged_by}"
    return where, {name: Tried(_column(rows, "score"), _column(rows, first)) for name, rows in methods.items()}


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> dict[SettingKey, float]:
    key = ("lr", "coefficient", "second")
    return {
        (row[key[0]] or 0.0, row[key[1]] or 0.0, row[key[2]] or 0.0): row[name] for row in rows if row[name] is not None
    }

"""The scores of published searches, read from the file ``tuned.jsonl`` in the folder of the published records.

The runs of a search are not published as records; the file has one line for each ``racecar search``, with the score of
every setting that it tried.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from racecar_lab.experiments.streams.conditions import Conditions, sort_conditions
from racecar_lab.experiments.streams.transfer import SearchScores, SettingKey

if TYPE_CHECKING:
    from racecar_lab.running.run import Run

SEARCHES = "tuned.jsonl"
"""Name of the file with the published searches."""


def published_scores(runs: Sequence[Run]) -> dict[Conditions, dict[str, SearchScores]]:
    """The scores of the searches that were published with these runs: conditions → method → scores. They are read from
    the folder of the runs; empty if it has no file of searches."""
    folders = (getattr(run.store, "folder", None) for run in runs)
    folder = next((Path(folder) for folder in folders if folder is not None), None)
    if folder is None or not (folder / SEARCHES).is_file():
        return {}
    return read_scores(folder / SEARCHES)


def read_scores(path: Path) -> dict[Conditions, dict[str, SearchScores]]:
    """The scores in a file of searches: conditions → method → scores. The methods of one stream and net may have been
    searched by several commands, each of which is a line."""
    scores: dict[Conditions, dict[str, SearchScores]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        search = json.loads(line)
        if search["experiment"] == "streams":
            conditions, scores_by_method = scores_of_search(search)
            scores.setdefault(conditions, {}).update(scores_by_method)
    return sort_conditions(scores)


def scores_of_search(search: Mapping[str, Any]) -> tuple[Conditions, dict[str, SearchScores]]:
    """The conditions of one ``racecar search`` and the scores of every method, from the JSON object that it wrote."""
    conditions = Conditions.of(search["config"])
    rows_by_method = {method: result["tried"] for method, result in search["variants"].items()}
    first = f"first_{conditions.judged_by}"
    return conditions, {
        method: SearchScores(_by_setting(rows, "score"), _by_setting(rows, first))
        for method, rows in rows_by_method.items()
    }


def _by_setting(rows: Sequence[Mapping[str, Any]], column: str) -> dict[SettingKey, float]:
    """Setting → its number in a column of the tried settings; settings without a number are left out."""
    return {
        (row["lr"] or 0.0, row["weight"] or 0.0, row["second"] or 0.0): row[column]
        for row in rows
        if row[column] is not None
    }

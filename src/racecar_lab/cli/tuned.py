"""Reading of the file of ``--tuned``, which ``racecar search`` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from racecar_lab.config import Config
    from racecar_lab.experiment import Experiment


def read_tuned(
    path: Path, experiment: Experiment, config: Config, variants: Sequence[str], settings: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Variant → the settings that a search chose, from the file of ``--tuned``. Raises ValueError if the file is of
    another experiment or optimiser, lacks a variant, or has a field that the user sets by ``settings``, texts
    "FIELD=VALUE", too."""
    fields = () if experiment.search is None else experiment.search.chosen
    try:
        content = _read(path)
        made_for = content["experiment"], content["config"]["optimiser"]
        tuned = {name: _settings(chosen, (*fields, "weight")) for name, chosen in content["variants"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no file of `racecar search` ({type(error).__name__}: {error})") from None
    if made_for != (experiment.name, config.optimiser):
        raise ValueError(f"{path} was made for experiment {made_for[0]} with optimiser {made_for[1]}")
    missing = [name for name in variants if name not in tuned]
    if missing:
        raise ValueError(f"{path} has nothing for {', '.join(missing)}: leave them out by --variants")
    for field in fields:
        if is_set(settings, field):
            raise ValueError(f"{field} is given, and by {path} too: leave one of them out")
    return tuned


def is_set(settings: Sequence[str] | None, field: str) -> bool:
    """True if one of the texts "FIELD=VALUE" sets a field."""
    return any(text.partition("=")[0].strip() == field for text in settings or [])


def _settings(chosen: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """The values that a search chose for a variant, field → number; "each" and "stages" hold those of each cluster or
    stage, if it chose for each."""
    settings: dict[str, Any] = {key: float(chosen[key]) for key in fields if key in chosen}
    for kind in {"each", "stages"} & chosen.keys():
        settings[kind] = {name: _settings(part, fields) for name, part in chosen[kind].items()}
    return settings


def _read(path: Path) -> Any:
    """The content of a JSON file, or of the line of a search in FILE.jsonl#NAME."""
    file, _, name = str(path).rpartition("#")
    is_lines = file.endswith(".jsonl")
    file_path = Path(file) if is_lines else path
    if not file_path.is_file():
        raise FileNotFoundError(
            f"--tuned {file_path}: there is no such file; give the tuned.json of a `racecar search`"
        )
    text = file_path.read_text(encoding="utf-8")
    if not is_lines:
        return json.loads(text)
    searches = {line["name"]: line for line in map(json.loads, text.splitlines())}
    if name not in searches:
        raise LookupError(f"{file} has no search {name!r}, but {', '.join(searches)}")
    return searches[name]

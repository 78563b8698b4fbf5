"""From the texts of options to the settings of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from racecar.support.console import note
from racecar.support.processes import is_rank_zero
from racecar_lab.cli.options import CommandOptions

if TYPE_CHECKING:
    from racecar_lab.config import Config
    from racecar_lab.experiment import Experiment


def config_of(one: Experiment, options: CommandOptions) -> Config:
    """The experiment's own, or its short form, with what ``--set`` changes."""
    from racecar_lab.config import override

    return override(one.Config(**(_quick(one, options) if options.quick else {})), options.settings or [])


def _quick(one: Experiment, options: CommandOptions) -> dict[str, Any]:
    """The short form; with data that come with racecar where it needs others, the user names no folder of data, and
    they are not in the usual one."""
    from racecar_lab.datasets import data_folder, source

    where = data_folder(None)
    missing = [name for name in one.needs(one.Config(**one.quick)) if source(name).here(where) == "no"]
    if not (missing and one.quick_shipped and options.data is None):
        return one.quick
    quick = {**one.quick, **one.quick_shipped}
    if is_rank_zero():
        data, remedy = one.told_data(one.Config(**quick)), source(missing[0]).remedy(where)
        note(f"{missing[0]} is not in {where} ({remedy}), so this run takes {data}")
    return quick


def folder_of(out: Path | None, name: str, *marks: str) -> Path:
    """Where results go: what is no evidence goes elsewhere than what is, unless the user says where."""
    return out or Path("out") / "-".join(filter(None, (name, *marks)))


def variants_of(one: Experiment, options: CommandOptions) -> list[str]:
    """From "Std,RR"; the experiment's own if there are none."""
    names = [name.strip() for name in options.variants.split(",") if name.strip()] or list(one.variants)
    return [one.variant(name).name for name in names]


def count_of(options: CommandOptions) -> int:
    """How many seeds the user asks for; 0: does not say."""
    from racecar_lab.running.jobs import MOST

    if options.seeds > MOST:
        raise ValueError(
            f"--seeds {options.seeds}: at most {MOST:,} at once; more of them by --first-seed, in another run"
        )
    return options.seeds


def seeds_of(one: Experiment, options: CommandOptions) -> range:
    """Those that the user asks for, or as many as the experiment says."""
    first = options.first or 0
    return range(first, first + (count_of(options) or (one.quick_seeds if options.quick else one.seeds)))


def sets(settings: Sequence[str] | None, field: str) -> bool:
    """Whether the user gives a field."""
    return any(text.partition("=")[0].strip() == field for text in settings or [])


def coefficients_of(one: Experiment, options: CommandOptions, variants: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Variant → coefficients, from texts such as "RR=0.01,0.1"."""
    found: dict[str, tuple[float, ...]] = {}
    for text in options.coefficient or []:
        name, equals, values = text.partition("=")
        if not equals:
            raise ValueError(f"--coefficient {text!r}: write VARIANT=a,b,c, for example RR=0.01,0.1")
        if not one.variant(name).meaning:
            raise ValueError(f"--coefficient {text!r}: {name} has no coefficient")
        if name not in variants:
            raise ValueError(f"--coefficient {text!r}: {name} is not run, but {', '.join(variants)}")
        found[name] = numbers_of(values, f"--coefficient {name}")
    return found


def numbers_of(text: str, option: str) -> tuple[float, ...]:
    """From "0.01,0.1"; each of them once."""
    from racecar_lab.config import parse

    return tuple(dict.fromkeys(parse(value.strip(), float, option) for value in text.split(",")))


def tuned_of(
    path: Path | None, one: Experiment, config: Config, variants: Sequence[str], settings: Sequence[str]
) -> Mapping[str, Mapping[str, Any]]:
    """Variant → settings, from the file that ``racecar search`` wrote for this experiment and optimiser."""
    if path is None:
        return {}
    try:
        content, fields = _searched(path), () if one.search is None else one.search.chosen
        made_for = content["experiment"], content["config"]["optimiser"]
        tuned = {name: _settings(found, (*fields, "coefficient")) for name, found in content["variants"].items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no file of `racecar search` ({type(error).__name__}: {error})") from None
    if made_for != (one.name, config.optimiser):
        raise ValueError(f"{path} was made for experiment {made_for[0]} with optimiser {made_for[1]}")
    missing = [name for name in variants if name not in tuned]
    if missing:
        raise ValueError(f"{path} has nothing for {', '.join(missing)}: leave them out by --variants")
    for field in fields:
        if sets(settings, field):
            raise ValueError(f"{field} is given, and by {path} too: leave one of them out")
    return tuned


def _settings(found: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """What was chosen; for each cluster or stage, where it was."""
    own: dict[str, Any] = {key: float(found[key]) for key in fields if key in found}
    for kind in {"each", "stages"} & found.keys():
        own[kind] = {name: _settings(one, fields) for name, one in found[kind].items()}
    return own


def _searched(path: Path) -> Any:
    """What a search wrote: a file, or one line of several searches, FILE.jsonl#NAME."""
    import json

    file, _, name = str(path).rpartition("#")
    several = file.endswith(".jsonl")
    place = Path(file) if several else path
    if not place.is_file():
        raise FileNotFoundError(f"--tuned {place}: there is no such file; give the tuned.json of a `racecar search`")
    text = place.read_text(encoding="utf-8")
    if not several:
        return json.loads(text)
    found = {one["name"]: one for one in map(json.loads, text.splitlines())}
    if name not in found:
        raise LookupError(f"{file} has no search {name!r}, but {', '.join(found)}")
    return found[name]

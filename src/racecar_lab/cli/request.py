"""Turns the options of a command into experiment, settings, variants, λs and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from racecar.support.console import note
from racecar.support.processes import is_rank_zero
from racecar_lab.cli.options import CommandOptions
from racecar_lab.cli.tuned import read_tuned

if TYPE_CHECKING:
    from racecar_lab.config import Config
    from racecar_lab.experiment import Experiment


@dataclass(frozen=True)
class Request:
    """An experiment, with its settings from the options that ``run``, ``sweep`` and ``search`` have in common."""

    experiment: Experiment
    config: Config
    """The experiment's default configuration or its short form, with the changes by ``--set``."""
    variants: list[str]
    weights: dict[str, tuple[float, ...]]
    """Variant → its λs, for those that ``--weight`` names."""
    seeds: range

    def tuned(self, file: Path | None, settings: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """Variant → the settings that a search chose for it, from the file of ``--tuned``."""
        return {} if file is None else read_tuned(file, self.experiment, self.config, self.variants, settings)


def read(name: str, options: CommandOptions) -> Request:
    """The experiment of this name, with its settings from the options of a command; raises ValueError for invalid
    ones."""
    from racecar_lab.config import override
    from racecar_lab.experiments import experiment as named

    experiment = named(name)
    short = _quick(experiment, options) if options.quick else {}
    config = override(experiment.Config(**short), options.settings or [])
    variants = [experiment.variant(name).name for name in split(options.variants) or experiment.variants]
    weights = _weights(experiment, options, variants)
    return Request(experiment, config, variants, weights, _seeds(experiment, options))


def split(text: str) -> list[str]:
    """The values in a text such as "a, b,c"."""
    return [value.strip() for value in text.split(",") if value.strip()]


def numbers(text: str, option: str) -> tuple[float, ...]:
    """The numbers in a text such as "0.01,0.1", each once."""
    from racecar_lab.config import parse

    return tuple(dict.fromkeys(parse(value.strip(), float, option) for value in text.split(",")))


def folder_of(out: Path | None, name: str, *marks: str) -> Path:
    """The results folder: that of ``--out``, or out/NAME with marks such as "quick", which keep evidence apart."""
    return out or Path("out") / "-".join(filter(None, (name, *marks)))


def _quick(experiment: Experiment, options: CommandOptions) -> Mapping[str, Any]:
    """The settings of an experiment's short form, field → value. If its data sets are missing from the usual folder,
    and the user names no other folder, data that come with racecar are used if the experiment can."""
    from racecar_lab.datasets import data_folder

    path, quick = data_folder(None), experiment.quick
    missing = [data for data in experiment.sources(experiment.Config(**quick.settings)) if data.here(path) == "no"]
    if not (missing and quick.shipped and options.data is None):
        return quick.settings
    if is_rank_zero():
        shipped = experiment.reporting.describe_data(experiment.Config(**quick.settings_shipped))
        note(f"{missing[0].name} is not in {path} ({missing[0].remedy(path)}), so this run takes {shipped}")
    return quick.settings_shipped


def _seeds(experiment: Experiment, options: CommandOptions) -> range:
    """The seeds that the user asks for; by default as many as the experiment or its short form says, from 0."""
    from racecar_lab.running.jobs import MOST

    if options.seeds > MOST:
        raise ValueError(
            f"--seeds {options.seeds}: at most {MOST:,} at once; more of them by --first-seed, in another run"
        )
    first, default = options.first or 0, experiment.quick.seeds if options.quick else experiment.seeds
    return range(first, first + (options.seeds or default))


def _weights(experiment: Experiment, options: CommandOptions, variants: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Variant → its λs, from the texts of ``--weight`` such as "RR=0.01,0.1"."""
    weights: dict[str, tuple[float, ...]] = {}
    for text in options.weight or []:
        name, equals, values = text.partition("=")
        if not equals:
            raise ValueError(f"--weight {text!r}: write VARIANT=a,b,c, for example RR=0.01,0.1")
        if not experiment.variant(name).meaning:
            raise ValueError(f"--weight {text!r}: {name} has no weight")
        if name not in variants:
            raise ValueError(f"--weight {text!r}: {name} is not run, but {', '.join(variants)}")
        weights[name] = numbers(values, f"--weight {name}")
    return weights

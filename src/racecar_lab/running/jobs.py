"""What there is to do: a job for each configuration, variant, coefficient and seed, with its stages and their ids."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from racecar.support.progress import bar
from racecar_lab.config import Config
from racecar_lab.datasets import other_files, source
from racecar_lab.experiment import Experiment, Stage, Task
from racecar_lab.incomplete import lacks
from racecar_lab.running.record import OTHER_DATA
from racecar_lab.running.results import Store, identity

MOST = 100_000
"""Jobs of one command: more are a slip, and would fill the memory with plans."""


@dataclass(frozen=True, eq=False)
class Job:
    """All stages of one network: they follow from each other, so one worker does them."""

    experiment: Experiment
    base: Config
    """As the user gave it, for all variants alike."""
    tuned: Mapping[str, Any]
    """What a search chose for this variant instead."""
    variant: str
    coefficient: float | None
    seed: int
    folder: Path | None
    """Where the data are."""
    stages: tuple[Stage, ...]
    ids: Mapping[str, str]
    """Stage name → id of its result."""
    purpose: str = ""
    """What its results are made for, of ``record.PURPOSES``; their ids do not depend on it."""
    other_data: tuple[str, ...] = ()
    """Files of its data that are not the published ones, each with its checksum; ids depend on them."""
    before: Job | None = None
    """That of the experiment that this one builds on, which is done first; ``ids`` has its stages, too."""

    @property
    def config(self) -> Config:
        return tune(self.base, self.tuned)

    @property
    def label(self) -> str:
        c = "" if self.coefficient is None else f" {self.coefficient:g}"
        clusters = self.experiment.clusters
        where = "" if clusters is None else f" {clusters.field} {clusters.of(self.base)}"
        return f"{self.experiment.name} {self.variant}{c}{where} seed {self.seed}"

    def unfinished(self, store: Store) -> list[Stage]:
        return [stage for stage in self.stages if not store.has(self.ids[stage.name])]

    def origin(self, stage: Stage) -> tuple[Job, Stage] | None:
        """The stage that this one starts from, and whose it is."""
        if stage.after is None:
            return None
        own = {one.name: (self, one) for one in self.experiment.stages(self.config)}
        others = {} if self.before is None else {one.name: (self.before, one) for one in self.before.stages}
        return {**others, **own}[stage.after]

    def task(self, tasks: Mapping[str, Task], stage: Stage) -> Task:
        """What a stage trains on, of all that the experiment's ``data`` gave."""
        if stage.task not in tasks:
            known = ", ".join(tasks) or "none"
            raise ValueError(f"{type(self.experiment).__name__}.data gave no task {stage.task!r}, but {known}")
        return tasks[stage.task]

    def parent(self, stage: Stage) -> str | None:
        """The id of the stage that this one starts from."""
        return None if stage.after is None else self.ids[stage.after]


def tune(config: Config, tuned: Mapping[str, Any]) -> Config:
    """A configuration with what a search chose; the coefficient is no field of it."""
    chosen = {name: value for name, value in tuned.items() if name != "coefficient"}
    return replace(config, **chosen) if chosen else config


def make_jobs(
    experiment: Experiment,
    config: Config,
    variants: Sequence[str],
    seeds: Iterable[int],
    folder: Path | None,
    coefficients: Mapping[str, Sequence[float]] | None = None,
    tuned: Mapping[str, Mapping[str, Any]] | None = None,
    purpose: str = "",
) -> list[Job]:
    """Every combination; says how far it is, where that takes long.

    Args:
        coefficients: variant → its coefficients; a variant without an entry has the experiment's own.
        tuned: variant → settings (and "coefficient") that a search chose for it; "each" has them by cluster, and
            "stages" by stage.
        purpose: what the results are made for: evidence if empty, "quick" or "search".
    """
    refuse_incomplete(experiment)
    jobs: list[Job] = []
    seeds = list(dict.fromkeys(islice(seeds, MOST + 1)))
    with bar("planning", None, transient=True) as advance:
        for job in _every(experiment, config, variants, seeds, folder, coefficients or {}, tuned or {}, purpose):
            jobs.append(job)
            advance(1, "jobs")
            refuse_too_many(jobs)
    return jobs


def refuse_incomplete(experiment: Experiment) -> None:
    """Refuse an experiment that lacks what every run needs."""
    if not isinstance(experiment, Experiment):
        raise TypeError(f"give an instance of a subclass of Experiment, as Mine(), not {experiment!r:.80}")
    kind = type(experiment)
    for part in ("name", "title"):
        if not getattr(kind, part, ""):
            raise lacks(kind, part)
    if kind.data is Experiment.data:
        raise lacks(kind, "data")
    if kind.network is Experiment.network and kind.networks is Experiment.networks:
        raise lacks(kind, "network")


def with_earlier(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, and before them those that they build on, each once."""
    first = {tuple(job.before.ids.values()): job.before for job in jobs if job.before is not None}
    return [*first.values(), *jobs]


def refuse_too_many(jobs: Sequence[Job]) -> None:
    if len(jobs) > MOST:
        raise ValueError(f"more than {MOST:,} trainings at once: give fewer seeds, variants or values")


def _every(
    experiment: Experiment,
    config: Config,
    variants: Sequence[str],
    seeds: Sequence[int],
    folder: Path | None,
    coefficients: Mapping[str, Sequence[float]],
    tuned: Mapping[str, Mapping[str, Any]],
    purpose: str,
) -> Iterator[Job]:
    others = cache(lambda name: other_files(source(name), folder))
    for one in experiment.configs(config, folder):
        files = {path: checksum for name in experiment.needs(one) for path, checksum in others(name).items()}
        other, data = tuple(map(" ".join, files.items())), experiment.fingerprint(one, folder)
        data = "; ".join([data, *(checksum for checksum in files.values() if checksum not in data)])
        why = purpose or (OTHER_DATA if other else "")
        for name in dict.fromkeys(variants):
            for own, stages in _parts(experiment, one, name, tuned.get(name, {})):
                config, values = tune(one, own), _values(experiment, one, name, own, coefficients)
                for stage in stages:
                    experiment.recipe(config, stage)  # one that cannot be is refused before anything is trained
                for coefficient in values:
                    for seed in seeds:
                        before = _before(experiment, one, own, name, coefficient, seed, folder, purpose)
                        earlier = {} if before is None else before.ids
                        ids = _ids(experiment, config, name, coefficient, seed, stages, data, earlier)
                        what = experiment, one, own, name, coefficient, seed, folder, stages, ids
                        yield Job(*what, purpose=why, other_data=other, before=before)


def _parts(
    experiment: Experiment, config: Config, name: str, tuned: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], tuple[Stage, ...]]]:
    """What a search chose for a variant, and the stages that have it: all of them, or each stage its own."""
    own = _own(experiment, config, tuned)
    apart: Mapping[str, Any] | None = own.pop("stages", None)
    stages = [s for s in experiment.stages(tune(config, own)) if s.variants is None or name in s.variants]
    if apart is None:
        yield from [(own, tuple(stages))] * bool(stages)
        return
    for stage in stages:
        if stage.name not in apart:
            raise ValueError(f"the search chose nothing for stage {stage.name} of {name}: search once more")
        yield {**own, **apart[stage.name]}, (stage,)


def _values(
    experiment: Experiment,
    config: Config,
    name: str,
    tuned: Mapping[str, Any],
    coefficients: Mapping[str, Sequence[float]],
) -> list[float | None]:
    """The coefficients of a variant: the user's, that of a search, or the experiment's own; None where it has none."""
    if not experiment.variant(name).meaning:
        return [None]
    found = tuned.get("coefficient")
    default = experiment.coefficient(config, name) if found is None else found
    values = list(dict.fromkeys(coefficients.get(name) or (default,)))
    for value in values:
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
            raise ValueError(f"the coefficient of {name} must be a number of at least 0, not {value!r:.80}")
    return values


def _before(
    experiment: Experiment,
    base: Config,
    tuned: Mapping[str, Any],
    name: str,
    coefficient: float | None,
    seed: int,
    folder: Path | None,
    purpose: str,
) -> Job | None:
    """The job that it builds on, with as much of its settings as that one has."""
    from racecar_lab.experiments import experiment as named

    if not experiment.builds_on:
        return None
    first = named(experiment.builds_on)
    known = {f.name for f in fields(first.Config)}
    config = first.Config(**{field: getattr(base, field) for field in known})
    chosen = {field: value for field, value in tuned.items() if field in {*known, "coefficient"}}
    coefficients = {} if coefficient is None else {name: (coefficient,)}
    (job,) = _every(first, config, [name], [seed], folder, coefficients, {name: chosen}, purpose)
    return job


def _own(experiment: Experiment, config: Config, tuned: Mapping[str, Any]) -> dict[str, Any]:
    """What a search chose for a variant; where it chose for each cluster, for that of this configuration."""
    if "each" not in tuned or experiment.clusters is None:
        return dict(tuned)
    which = experiment.clusters.of(config)
    if str(which) not in tuned["each"]:
        raise ValueError(f"the search chose nothing for {experiment.clusters.field} {which}: search with it, too")
    return dict(tuned["each"][str(which)])


def _ids(
    experiment: Experiment,
    config: Config,
    name: str,
    coefficient: float | None,
    seed: int,
    stages: Sequence[Stage],
    data: str,
    earlier: Mapping[str, str],
) -> dict[str, str]:
    """A stage's name is a hash of all that determines its result; ``earlier`` ones are those that it builds on."""
    ids = dict(earlier)
    for stage in stages:
        if stage.after is not None and stage.after not in ids:
            raise ValueError(
                f"stage {stage.name} of {experiment.name} is after {stage.after!r}, which is none before it"
            )
        what: dict[str, Any] = {
            "experiment": experiment.name,
            "version": experiment.version,
            "config": config.to_name(),
            "variant": name,
            "coefficient": coefficient,
            "seed": seed,
            "stage": [stage.name, stage.task, stage.regularised, stage.epochs],
            "parent": None if stage.after is None else ids[stage.after],
            "data": data,
        }
        ids[stage.name] = identity(what)
    return ids

"""A job: one training with all its stages, for one configuration, variant, λ and seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from racecar_lab.config import Config
from racecar_lab.experiment import Experiment
from racecar_lab.running.results import Store, identity
from racecar_lab.stage import Stage
from racecar_lab.task import Task


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """All stages of one training, with its experiment, configuration, variant, λ and seed. Stages start from earlier
    ones, so one worker does them all."""

    experiment: Experiment
    base: Config
    """The configuration that the user gave, the same for all variants."""
    tuned: Mapping[str, Any]
    """Settings that a search chose for this variant; they replace those of ``base``."""
    variant: str
    weight: float | None
    seed: int
    folder: Path | None
    """The data folder; None: the usual one."""
    stages: tuple[Stage, ...]
    ids: Mapping[str, str] = field(default_factory=dict)
    """Stage name → id of its result, also for the stages of ``before``."""
    purpose: str = ""
    """Purpose of its results, one of ``record.PURPOSES``; ids do not depend on it."""
    other_data: tuple[str, ...] = ()
    """Data files that are not the published ones, as "path checksum"; ids depend on them."""
    before: Job | None = None
    """The job of the experiment that this one builds on; it is done first."""

    @property
    def config(self) -> Config:
        """The configuration of the training: ``base`` with the settings that a search chose."""
        return tune(self.base, self.tuned)

    @property
    def label(self) -> str:
        """A short text that names the job in messages."""
        weight = "" if self.weight is None else f" {self.weight:g}"
        clusters = self.experiment.clusters
        cluster = "" if clusters is None else f" {clusters.field} {clusters.of(self.base)}"
        return f"{self.experiment.name} {self.variant}{weight}{cluster} seed {self.seed}"

    def unfinished(self, store: Store) -> list[Stage]:
        """The stages whose results are not in the store."""
        return [stage for stage in self.stages if not store.has(self.ids[stage.name])]

    def origin(self, stage: Stage) -> tuple[Job, Stage] | None:
        """The job and the stage whose weights a stage starts from; None if it starts from fresh weights."""
        if stage.after is None:
            return None
        origins = {} if self.before is None else {other.name: (self.before, other) for other in self.before.stages}
        origins |= {other.name: (self, other) for other in self.experiment.stages(self.config)}
        return origins[stage.after]

    def task(self, tasks: Mapping[str, Task], stage: Stage) -> Task:
        """The data that a stage trains on, out of those that the experiment's ``data`` returned."""
        if stage.task not in tasks:
            known = ", ".join(tasks) or "none"
            raise ValueError(f"{type(self.experiment).__name__}.data gave no task {stage.task!r}, but {known}")
        return tasks[stage.task]

    def parent(self, stage: Stage) -> str | None:
        """The id of the result that a stage starts from; None if it starts from fresh weights."""
        return None if stage.after is None else self.ids[stage.after]


def tune(config: Config, tuned: Mapping[str, Any]) -> Config:
    """A configuration with the settings that a search chose; λ among them is left out."""
    chosen = {name: value for name, value in tuned.items() if name != "weight"}
    return replace(config, **chosen) if chosen else config


def with_ids(job: Job, data: str) -> Job:
    """The job with the ids of its stages, each a hash of everything that determines the stage's result.

    Args:
        data: fingerprint of the data.
    """
    experiment, ids = job.experiment, {} if job.before is None else dict(job.before.ids)
    for stage in job.stages:
        if stage.after is not None and stage.after not in ids:
            raise ValueError(
                f"stage {stage.name} of {experiment.name} is after {stage.after!r}, which is none before it"
            )
        content: dict[str, Any] = {
            "experiment": experiment.name,
            "version": experiment.version,
            "config": job.config.to_name(),
            "variant": job.variant,
            "weight": job.weight,
            "seed": job.seed,
            "stage": [stage.name, stage.task, stage.regularised, stage.epochs],
            "parent": None if stage.after is None else ids[stage.after],
            "data": data,
        }
        ids[stage.name] = identity(content)
    return replace(job, ids=ids)

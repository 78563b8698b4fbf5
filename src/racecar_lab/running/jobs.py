"""Jobs: one for each configuration, variant, λ and seed, with its stages and the ids of their results."""

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
"""Maximal number of jobs of one command: more are probably a typing error, and would fill the memory."""


@dataclass(frozen=True, eq=False)
class Job:
    """All stages of one training. Each starts from an earlier one, so one worker does them all."""

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
    ids: Mapping[str, str]
    """Stage name → id of its result, also for the stages of ``before``."""
    purpose: str = ""
    """Purpose of its results, one of ``record.PURPOSES``; ids do not depend on it."""
    other_data: tuple[str, ...] = ()
    """Data files that are not the published ones, as "path checksum"; ids depend on them."""
    before: Job | None = None
    """The job of the experiment that this one builds on; it is done first."""

    @property
    def config(self) -> Config:
        """The configuration that is trained with."""
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
        """The stage that this one starts from, with its job; None if it starts from new weights."""
        if stage.after is None:
            return None
        origins = {} if self.before is None else {other.name: (self.before, other) for other in self.before.stages}
        origins |= {other.name: (self, other) for other in self.experiment.stages(self.config)}
        return origins[stage.after]

    def task(self, tasks: Mapping[str, Task], stage: Stage) -> Task:
        """The task of a stage, from the tasks that the experiment's ``data`` returned."""
        if stage.task not in tasks:
            known = ", ".join(tasks) or "none"
            raise ValueError(f"{type(self.experiment).__name__}.data gave no task {stage.task!r}, but {known}")
        return tasks[stage.task]

    def parent(self, stage: Stage) -> str | None:
        """The id of the stage that this one starts from; None if it starts from new weights."""
        return None if stage.after is None else self.ids[stage.after]


def tune(config: Config, tuned: Mapping[str, Any]) -> Config:
    """A configuration with the settings that a search chose; λ among them is left out."""
    chosen = {name: value for name, value in tuned.items() if name != "weight"}
    return replace(config, **chosen) if chosen else config


def make_jobs(
    experiment: Experiment,
    config: Config,
    variants: Sequence[str],
    seeds: Iterable[int],
    folder: Path | None,
    weights: Mapping[str, Sequence[float]] | None = None,
    tuned: Mapping[str, Mapping[str, Any]] | None = None,
    purpose: str = "",
) -> list[Job]:
    """The jobs for every combination of configuration, variant, λ and seed; shows progress if it takes long.

    Args:
        weights: variant → its λs; the default is the experiment's λ.
        tuned: variant → settings (and λ, as "weight") that a search chose for it; "each" has them by cluster,
            "stages" by stage.
        purpose: purpose of the results: "" for evidence, "quick" or "search".
    """
    refuse_incomplete(experiment)
    jobs: list[Job] = []
    seeds = list(dict.fromkeys(islice(seeds, MOST + 1)))
    with bar("planning", None, transient=True) as advance:
        for job in _combinations(
            experiment,
            config,
            variants,
            seeds,
            folder,
            weights=weights or {},
            tuned=tuned or {},
            purpose=purpose,
        ):
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
    """The jobs, preceded by the jobs that they build on, each once."""
    earlier = {tuple(job.before.ids.values()): job.before for job in jobs if job.before is not None}
    return [*earlier.values(), *jobs]


def refuse_too_many(jobs: Sequence[Job]) -> None:
    """Refuse more than ``MOST`` jobs."""
    if len(jobs) > MOST:
        raise ValueError(f"more than {MOST:,} trainings at once: give fewer seeds, variants or values")


def _combinations(
    experiment: Experiment,
    config: Config,
    variants: Sequence[str],
    seeds: Sequence[int],
    folder: Path | None,
    *,
    weights: Mapping[str, Sequence[float]],
    tuned: Mapping[str, Mapping[str, Any]],
    purpose: str,
) -> Iterator[Job]:
    """The jobs of ``make_jobs``, one after the other."""
    unpublished_files = cache(lambda name: other_files(source(name), folder))
    for base in experiment.configs(config, folder):
        files = {
            path: checksum for name in experiment.needs(base) for path, checksum in unpublished_files(name).items()
        }
        other_data, data = tuple(map(" ".join, files.items())), experiment.fingerprint(base, folder)
        data = "; ".join([data, *(checksum for checksum in files.values() if checksum not in data)])
        for variant in dict.fromkeys(variants):
            for chosen, stages in _parts(experiment, base, variant, tuned.get(variant, {})):
                config = tune(base, chosen)
                values = _weights(experiment, base, variant, chosen, weights)
                for stage in stages:
                    experiment.recipe(config, stage)  # an impossible recipe is refused before anything is trained
                for weight in values:
                    for seed in seeds:
                        before = _earlier_job(experiment, base, chosen, variant, weight, seed, folder, purpose)
                        yield Job(
                            experiment=experiment,
                            base=base,
                            tuned=chosen,
                            variant=variant,
                            weight=weight,
                            seed=seed,
                            folder=folder,
                            stages=stages,
                            ids=_ids(
                                experiment,
                                config,
                                variant,
                                weight,
                                seed,
                                stages,
                                data=data,
                                earlier={} if before is None else before.ids,
                            ),
                            purpose=purpose or (OTHER_DATA if other_data else ""),
                            other_data=other_data,
                            before=before,
                        )


def _parts(
    experiment: Experiment, config: Config, variant: str, tuned: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], tuple[Stage, ...]]]:
    """Pairs of the settings that a search chose for a variant and the stages that they are for: one pair, or one for
    each stage where the search chose for each by itself."""
    chosen = _chosen_for_cluster(experiment, config, tuned)
    by_stage: Mapping[str, Any] | None = chosen.pop("stages", None)
    all_stages = experiment.stages(tune(config, chosen))
    stages = tuple(stage for stage in all_stages if stage.variants is None or variant in stage.variants)
    if by_stage is None:
        if stages:
            yield chosen, stages
        return
    for stage in stages:
        if stage.name not in by_stage:
            raise ValueError(f"the search chose nothing for stage {stage.name} of {variant}: search once more")
        yield {**chosen, **by_stage[stage.name]}, (stage,)


def _weights(
    experiment: Experiment,
    config: Config,
    variant: str,
    tuned: Mapping[str, Any],
    weights: Mapping[str, Sequence[float]],
) -> list[float | None]:
    """The λs of a variant: those of the user, else that of a search, else the experiment's; [None] if the
    variant has none."""
    if not experiment.variant(variant).meaning:
        return [None]
    default = tuned.get("weight")
    if default is None:
        default = experiment.weight(config, variant)
    values = list(dict.fromkeys(weights.get(variant) or (default,)))
    for value in values:
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
            raise ValueError(f"the weight of {variant} must be a number of at least 0, not {value!r:.80}")
    return values


def _earlier_job(
    experiment: Experiment,
    base: Config,
    tuned: Mapping[str, Any],
    variant: str,
    weight: float | None,
    seed: int,
    folder: Path | None,
    purpose: str,
) -> Job | None:
    """The job of the experiment that this one builds on, with the settings that the two have in common; None if it
    builds on none."""
    from racecar_lab.experiments import experiment as named

    if not experiment.builds_on:
        return None
    earlier = named(experiment.builds_on)
    names = {field.name for field in fields(earlier.Config)}
    (job,) = _combinations(
        earlier,
        earlier.Config(**{name: getattr(base, name) for name in names}),
        [variant],
        [seed],
        folder,
        weights={} if weight is None else {variant: (weight,)},
        tuned={variant: {name: value for name, value in tuned.items() if name in {*names, "weight"}}},
        purpose=purpose,
    )
    return job


def _chosen_for_cluster(experiment: Experiment, config: Config, tuned: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a search chose for a variant; if it chose for each cluster, those of this configuration's."""
    if "each" not in tuned or experiment.clusters is None:
        return dict(tuned)
    cluster = experiment.clusters.of(config)
    if str(cluster) not in tuned["each"]:
        raise ValueError(f"the search chose nothing for {experiment.clusters.field} {cluster}: search with it, too")
    return dict(tuned["each"][str(cluster)])


def _ids(
    experiment: Experiment,
    config: Config,
    variant: str,
    weight: float | None,
    seed: int,
    stages: Sequence[Stage],
    data: str,
    earlier: Mapping[str, str],
) -> dict[str, str]:
    """Stage name → id, a hash of everything that determines the stage's result.

    Args:
        data: fingerprint of the data.
        earlier: ids of the stages of the job that this one builds on; they are returned, too.
    """
    ids = dict(earlier)
    for stage in stages:
        if stage.after is not None and stage.after not in ids:
            raise ValueError(
                f"stage {stage.name} of {experiment.name} is after {stage.after!r}, which is none before it"
            )
        content: dict[str, Any] = {
            "experiment": experiment.name,
            "version": experiment.version,
            "config": config.to_name(),
            "variant": variant,
            "weight": weight,
            "seed": seed,
            "stage": [stage.name, stage.task, stage.regularised, stage.epochs],
            "parent": None if stage.after is None else ids[stage.after],
            "data": data,
        }
        ids[stage.name] = identity(content)
    return ids

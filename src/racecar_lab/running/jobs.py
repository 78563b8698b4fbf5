"""Makes the jobs of a command: one for each configuration, variant, λ and seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice, product
from pathlib import Path
from typing import Any

from racecar.support.progress import bar
from racecar_lab.config import Config
from racecar_lab.datasets import other_files
from racecar_lab.experiment import Experiment
from racecar_lab.incomplete import lacks
from racecar_lab.running.job import Job, tune, with_ids
from racecar_lab.running.record import OTHER_DATA
from racecar_lab.stage import Stage

MOST = 100_000
"""Maximal number of jobs of one command: more are probably a typing error, and would fill the memory."""


def make_jobs(
    experiment: Experiment,
    config: Config,
    variants: Sequence[str],
    seeds: Iterable[int],
    folder: Path | None,
    *,
    weights: Mapping[str, Sequence[float]] | None = None,
    tuned: Mapping[str, Mapping[str, Any]] | None = None,
    purpose: str = "",
) -> list[Job]:
    """The jobs for every combination of configuration, variant, λ and seed; shows progress if it takes long.

    Args:
        folder: the data folder; None: the usual one.
        weights: variant → its λs; the default is the experiment's λ.
        tuned: variant → settings (and λ, as "weight") that a search chose for it; "each" has them by cluster,
            "stages" by stage.
        purpose: purpose of the results: "" for evidence, "quick" or "search".
    """
    refuse_incomplete(experiment)
    jobs: list[Job] = []
    seeds = list(dict.fromkeys(islice(seeds, MOST + 1)))
    choices: dict[str, Any] = {"weights": weights or {}, "tuned": tuned or {}, "purpose": purpose}
    with bar("planning", None, transient=True) as advance:
        for job in _combinations(experiment, config, variants, seeds, folder, **choices):
            jobs.append(job)
            advance(1, "jobs")
            refuse_too_many(jobs)
    return jobs


def refuse_incomplete(experiment: Experiment) -> None:
    """Raise an error if an experiment has no name, data or network, which every run needs."""
    if not isinstance(experiment, Experiment):
        raise TypeError(f"give an instance of a subclass of Experiment, as Mine(), not {experiment!r:.80}")
    kind = type(experiment)
    if not getattr(kind, "name", ""):
        raise lacks(kind, "name")
    if kind.data is Experiment.data:
        raise lacks(kind, "data")
    if kind.network is Experiment.network and kind.networks is Experiment.networks:
        raise lacks(kind, "network")


def refuse_too_many(jobs: Sequence[Job]) -> None:
    """Raise a ValueError if there are more than ``MOST`` jobs."""
    if len(jobs) > MOST:
        raise ValueError(f"more than {MOST:,} trainings at once: give fewer seeds, variants or values")


def with_earlier(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, preceded by those of other experiments that they build on, each once."""
    earlier = {tuple(job.before.ids.values()): job.before for job in jobs if job.before is not None}
    return [*earlier.values(), *jobs]


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
    """Generate the jobs for every combination of configuration, variant, λ and seed, one after the other."""
    other: dict[str, dict[str, str]] = {}
    for base in experiment.configs(config, folder):
        files: dict[str, str] = {}
        for source in experiment.sources(base):
            if source.name not in other:
                other[source.name] = other_files(source, folder)
            files |= other[source.name]
        data = experiment.fingerprint(base, folder)
        data = "; ".join([data, *(checksum for checksum in files.values() if checksum not in data)])
        for variant in dict.fromkeys(variants):
            for chosen, stages in _parts(experiment, base, variant, tuned.get(variant, {})):
                for stage in stages:
                    experiment.recipe(tune(base, chosen), stage)  # refuses an impossible one before any training
                values = _weights(experiment, base, variant, weights.get(variant, ()), chosen)
                for weight, seed in product(values, seeds):
                    job = Job(
                        experiment=experiment,
                        base=base,
                        tuned=chosen,
                        variant=variant,
                        weight=weight,
                        seed=seed,
                        folder=folder,
                        stages=stages,
                        purpose=purpose or (OTHER_DATA if files else ""),
                        other_data=tuple(map(" ".join, files.items())),
                    )
                    yield with_ids(replace(job, before=_job_before(job, purpose)), data)


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


def _chosen_for_cluster(experiment: Experiment, config: Config, tuned: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a search chose for a variant; if it chose for each cluster, those of this configuration's."""
    if "each" not in tuned or experiment.clusters is None:
        return dict(tuned)
    cluster = experiment.clusters.of(config)
    if str(cluster) not in tuned["each"]:
        raise ValueError(f"the search chose nothing for {experiment.clusters.field} {cluster}: search with it, too")
    return dict(tuned["each"][str(cluster)])


def _weights(
    experiment: Experiment, config: Config, variant: str, values: Sequence[float], tuned: Mapping[str, Any]
) -> list[float | None]:
    """The λs that a variant is trained with: those of the user, else the one that a search chose, else the experiment's
    default; [None] if the variant has none."""
    if not experiment.variant(variant).meaning:
        return [None]
    if not values:
        value = tuned.get("weight")
        values = (experiment.weight(config, variant) if value is None else value,)
    for value in values:
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
            raise ValueError(f"the weight of {variant} must be a number of at least 0, not {value!r:.80}")
    return list(dict.fromkeys(values))


def _job_before(job: Job, purpose: str) -> Job | None:
    """The job of the experiment that this one builds on, with the settings that the two have in common; None if it
    builds on none."""
    from racecar_lab.experiments import experiment as named

    if not job.experiment.builds_on:
        return None
    earlier = named(job.experiment.builds_on)
    names = {field.name for field in fields(earlier.Config)}
    (before,) = _combinations(
        earlier,
        earlier.Config(**{name: getattr(job.base, name) for name in names}),
        [job.variant],
        [job.seed],
        job.folder,
        weights={} if job.weight is None else {job.variant: (job.weight,)},
        tuned={job.variant: {name: value for name, value in job.tuned.items() if name in {*names, "weight"}}},
        purpose=purpose,
    )
    return before

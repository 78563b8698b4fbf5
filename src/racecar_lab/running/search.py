"""Hyperparameter search: it chooses learning rate, λ and more for every variant on validation data, with the
same number of trials for each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any, TypeVar

from racecar_lab.config import Config
from racecar_lab.experiment import Experiment
from racecar_lab.running.job import Job
from racecar_lab.running.jobs import make_jobs, refuse_too_many
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.search_space import Search, Setting
from racecar_lab.stage import Stage

K = TypeVar("K", bound=Hashable)


def trials(
    experiment: Experiment,
    search: Search,
    config: Config,
    variants: Sequence[str],
    folder: Any,
    bases: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Job]:
    """The jobs that a search starts with, for all variants. They have the stages whose scores count, and the stages
    that these start from.

    Args:
        config: a configuration that holds data out for validation.
        bases: variant → the settings that an earlier search chose; None if there was none.
    """
    candidates = {name: search.candidates(name, config.optimiser, bases[name] if bases else None) for name in variants}
    return jobs_of(experiment, search, config, candidates, folder)


def jobs_of(
    experiment: Experiment, search: Search, config: Config, candidates: Mapping[str, Sequence[Setting]], folder: Any
) -> list[Job]:
    """The jobs of a search that try ``candidates``, variant → settings, each with all of the search's seeds."""
    jobs = []
    seeds = range(search.first_seed, search.first_seed + search.seeds)
    for name, settings in candidates.items():
        for setting in settings:
            trial = make_jobs(experiment, config, [name], seeds, folder, tuned={name: setting}, purpose="search")
            jobs += (
                trial if search.apart else [replace(job, stages=_needed(job.stages, search.stages)) for job in trial]
            )
            refuse_too_many(jobs)
    return jobs


def _needed(stages: Sequence[Stage], judged: Sequence[str]) -> tuple[Stage, ...]:
    """The stages that a search must train: those whose scores count, named by ``judged``, and those that they start
    from."""
    names = set(judged)
    for stage in reversed(stages):
        if stage.name in names and stage.after:
            names.add(stage.after)
    return tuple(stage for stage in stages if stage.name in names)


def trained(jobs: Sequence[Job]) -> dict[Job, Job]:
    """Job → the job that is trained for it. A regulariser with λ = 0 changes nothing, so jobs that differ only
    in their regulariser, and Std with the same settings, share one training."""
    plain_jobs: dict[tuple[Any, ...], Job] = {}
    training_of = {}
    for job in jobs:
        stages = tuple(stage for stage in job.stages if stage.variants is None)  # only Std has other stages
        training_of[job] = plain_jobs.setdefault((job.config, job.seed, stages), job) if _is_plain(job) else job
    return training_of


def _is_plain(job: Job) -> bool:
    """True if the job has no regulariser, or one with λ = 0."""
    kind = job.experiment.variant(job.variant).kind
    return kind == "plain" or (kind in ("reverse", "orthogonality", "decay") and job.weight == 0)


def best(jobs: Sequence[Job], store: Store, search: Search) -> dict[str, dict[str, Any]]:
    """Variant → the settings with the best mean score. Settings with a run that diverged or has no score are left out,
    and if the search has a limit, those with too large an error, too.

    If runs come in clusters, {"each": cluster → its settings}: those of a fold are chosen on the training pictures of
    that fold alone, so that test pictures have no influence. If the search chooses for each stage by itself, {"stages":
    stage → its settings}.
    """
    training_of = trained(jobs)

    def for_stages(jobs: Sequence[Job]) -> dict[str, Any]:
        if not search.apart:
            return _best(jobs, training_of, store, search)
        names = dict.fromkeys(stage.name for job in jobs for stage in job.stages)
        return {"stages": {name: _best(jobs, training_of, store, replace(search, stages=(name,))) for name in names}}

    def for_clusters(jobs: Sequence[Job]) -> dict[str, Any]:
        clusters = jobs[0].experiment.clusters
        if clusters is None:
            return for_stages(jobs)
        parts = _by(jobs, lambda job: str(clusters.of(job.config)))
        return {"each": {part: for_stages(members) for part, members in parts.items()}}

    return {name: for_clusters(members) for name, members in _by(jobs, lambda job: job.variant).items()}


def _best(jobs: Sequence[Job], training_of: Mapping[Job, Job], store: Store, search: Search) -> dict[str, Any]:
    """The best setting of one variant, with its score, all settings that were tried, and notes on its values that lie
    at an edge of those that were tried.

    Args:
        training_of: as ``trained`` returns it.
    """
    names = (*search.chosen, "weight")
    error, share = search.limit or ("", 0.0)
    columns = {"score": search.metric, **{name: name for name in (*search.beside, error) if name}}
    rows: list[dict[str, Any]] = []
    for setting, members in _by(jobs, lambda job: (*map(job.tuned.get, search.chosen), job.weight)).items():
        runs = [store.get(training_of[job].ids[name]) for job in members for name in search.stages]
        scores = {column: _mean(runs, metric) for column, metric in columns.items()}
        rows.append({**dict(zip(names, setting, strict=True)), **scores})
    scored = [row for row in rows if row["score"] is not None]
    if error:
        errors = [row[error] for row in rows if row[error] is not None]
        scored = [row for row in scored if row[error] is not None and row[error] <= (1 + share) * min(errors)]
    if not scored:
        raise ValueError(f"every setting of {jobs[0].variant} that was tried diverged; try smaller learning rates")
    best_row = (max if search.higher else min)(scored, key=lambda row: row["score"])
    chosen = {name: best_row[name] for name in (*names, "score") if best_row[name] is not None}
    chosen["tried"] = sorted(rows, key=lambda row: [row[name] or 0.0 for name in ("weight", *search.chosen)])
    return {**chosen, "edge": _edge(chosen)}


def _edge(chosen: Mapping[str, Any]) -> list[str]:
    """Notes on the best setting: one for each of its values that is the smallest or largest that was tried, because a
    better one may lie beyond it."""
    notes = []
    for name in (axis for axis in chosen["tried"][0] if axis in chosen and axis != "score"):
        values = sorted({row[name] for row in chosen["tried"] if row[name] is not None})
        for end, where in ((values[:1], "smallest"), (values[-1:], "largest")):
            if len(values) > 1 and chosen[name] in end:
                notes.append(f"{name} {chosen[name]:.3g} is the {where} that was tried")
    return notes


def _mean(runs: Sequence[Run], metric: str) -> float | None:
    """Mean of a metric over runs; None if one of them lacks it."""
    values = [run.metrics.get(metric) for run in runs]
    return None if None in values else mean(value for value in values if value is not None)


def _by(jobs: Iterable[Job], key: Callable[[Job], K]) -> dict[K, list[Job]]:
    """Group jobs by what the function ``key`` returns: key → jobs, in their order."""
    groups: dict[K, list[Job]] = {}
    for job in jobs:
        groups.setdefault(key(job), []).append(job)
    return groups

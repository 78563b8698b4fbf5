"""Choose learning rate, coefficient and more of every variant on validation data, with the same budget for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any, TypeVar

from racecar_lab.config import Config
from racecar_lab.experiment import Experiment, Stage
from racecar_lab.running.jobs import Job, make_jobs, refuse_too_many
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run
from racecar_lab.search_space import Search

K = TypeVar("K")


def trials(
    experiment: Experiment,
    search: Search,
    config: Config,
    variants: Sequence[str],
    folder: Any,
    given: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Job]:
    """All jobs of a search: the stages that it judges, and those that these start from. ``config`` must hold data out
    for validation. What the search before it chose for every variant is ``given``."""
    candidates = {name: search.candidates(name, config.optimiser, given[name] if given else None) for name in variants}
    return _trials(experiment, search, config, candidates, folder)


def further(
    experiment: Experiment, search: Search, config: Config, chosen: Mapping[str, Mapping[str, Any]], folder: Any
) -> list[Job]:
    """The jobs beyond the edges at which the best of some variants lie, where the search goes on there."""
    candidates = {name: search.beyond(name, one) for name, one in chosen.items()}
    return _trials(experiment, search, config, candidates, folder)


def _trials(
    experiment: Experiment,
    search: Search,
    config: Config,
    candidates: Mapping[str, Sequence[Mapping[str, float]]],
    folder: Any,
) -> list[Job]:
    jobs = []
    seeds = range(search.first_seed, search.first_seed + search.seeds)
    for name, some in candidates.items():
        for candidate in some:
            made = make_jobs(experiment, config, [name], seeds, folder, tuned={name: candidate}, purpose="search")
            jobs += made if search.apart else [replace(job, stages=_needed(job.stages, search.stages)) for job in made]
            refuse_too_many(jobs)
    return jobs


def _needed(stages: Sequence[Stage], judged: Sequence[str]) -> tuple[Stage, ...]:
    """Those that are judged, and those that they start from."""
    names = set(judged)
    for stage in reversed(stages):
        if stage.name in names and stage.after:
            names.add(stage.after)
    return tuple(stage for stage in stages if stage.name in names)


def trained(jobs: Sequence[Job]) -> dict[Job, Job]:
    """Job → the one that is trained in its place. A regulariser with coefficient 0 changes nothing: jobs that differ in
    it alone are one training, and Std's, where that has the same learning rate."""
    first: dict[tuple[Any, ...], Job] = {}
    found = {}
    for job in jobs:
        stages = tuple(stage for stage in job.stages if stage.variants is None)  # Std alone has more
        found[job] = first.setdefault((job.config, job.seed, stages), job) if _plain(job) else job
    return found


def _plain(job: Job) -> bool:
    """Whether nothing is left of its regulariser."""
    kind = job.experiment.variant(job.variant).kind
    return kind == "plain" or (kind in ("reverse", "orthogonality", "decay") and job.coefficient == 0)


def _edge(found: Mapping[str, Any]) -> list[str]:
    """What of a choice is the smallest or the largest that was tried, so that the best may lie beyond it."""
    said = []
    for name in (one for one in found["tried"][0] if one in found and one != "score"):
        tried = sorted({one[name] for one in found["tried"] if one[name] is not None})
        for end, where in ((tried[:1], "smallest"), (tried[-1:], "largest")):
            if len(tried) > 1 and found[name] in end:
                said.append(f"{name} {found[name]:.3g} is the {where} that was tried")
    return said


def best(jobs: Sequence[Job], store: Store, search: Search) -> dict[str, dict[str, Any]]:
    """Variant → the settings with the best mean; those with a run that diverged or has no score are out, and
    those with too large an error, where there is a limit.

    Where runs come in clusters, {"each": cluster → its own settings}: what is chosen for a fold comes from the training
    pictures of that fold alone, so that no test picture has a part in it.
    """
    chosen: dict[str, dict[str, Any]] = {}
    instead = trained(jobs)
    for name in dict.fromkeys(job.variant for job in jobs):
        own = [job for job in jobs if job.variant == name]
        clusters = own[0].experiment.clusters
        if clusters is None:
            chosen[name] = _for_each_stage(own, instead, store, search)
            continue
        parts: dict[str, list[Job]] = {}
        for job in own:
            parts.setdefault(str(clusters.of(job.config)), []).append(job)
        chosen[name] = {"each": {part: _for_each_stage(some, instead, store, search) for part, some in parts.items()}}
    return chosen


def _for_each_stage(jobs: Sequence[Job], instead: Mapping[Job, Job], store: Store, search: Search) -> dict[str, Any]:
    """Of one variant: {"stages": stage → its own settings}, where the search chooses for each by itself."""
    if not search.apart:
        return _best(jobs, instead, store, search)
    names = dict.fromkeys(stage.name for job in jobs for stage in job.stages)
    return {"stages": {name: _best(jobs, instead, store, replace(search, stages=(name,))) for name in names}}


def _best(jobs: Sequence[Job], instead: Mapping[Job, Job], store: Store, search: Search) -> dict[str, Any]:
    """Of one variant."""
    names = (*search.chosen, "coefficient")
    tried: dict[tuple[float | None, ...], list[Run]] = {}
    for job in jobs:
        key = (*(job.tuned.get(name) for name in search.chosen), job.coefficient)
        tried.setdefault(key, []).extend(store.get(instead[job].ids[name]) for name in search.stages)
    columns = {"score": _means(tried, search.metric), **{name: _means(tried, name) for name in search.beside}}
    running = columns["score"]
    if search.limit:
        error, share = search.limit
        columns[error] = errors = _means(tried, error)
        most = (1 + share) * min(errors.values(), default=0.0)
        running = {key: score for key, score in running.items() if key in errors and errors[key] <= most}
    if not running:
        raise ValueError(f"every setting of {jobs[0].variant} that was tried diverged; try smaller learning rates")
    first = (max if search.higher else min)(running, key=lambda key: running[key])
    table = [
        {**dict(zip(names, key, strict=True)), **{name: found.get(key) for name, found in columns.items()}}
        for key in sorted(tried, key=lambda key: [value or 0.0 for value in (key[-1], *key[:-1])])
    ]
    own = {what: value for what, value in zip(names, first, strict=True) if value is not None}
    chosen = {**own, "score": running[first], "tried": table}
    return {**chosen, "edge": _edge(chosen)}


def _means(tried: Mapping[K, Sequence[Run]], metric: str) -> dict[K, float]:
    """Of the settings all of whose runs have it."""
    found = {key: [run.metrics.get(metric) for run in runs] for key, runs in tried.items()}
    return {key: mean(v for v in values if v is not None) for key, values in found.items() if None not in values}

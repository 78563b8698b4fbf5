"""Statistics of runs that come in clusters, such as folds: the mean of each cluster is one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from racecar_lab.clusters import Clusters
from racecar_lab.report.statistics import Estimate, estimate
from racecar_lab.running.run import Run

Key = Any
"""The key by which runs are paired: seed, or (cluster, seed)."""
Values = Mapping[Key, float]


def cluster_means(values: Values, clusters: Clusters | None) -> dict[Any, float]:
    """Cluster → mean over its seeds; without clusters, the values themselves."""
    if clusters is None:
        return dict(values)
    members: dict[Any, list[float]] = {}
    for (cluster, _), value in values.items():
        members.setdefault(cluster, []).append(value)
    return {cluster: mean(cluster_values) for cluster, cluster_values in members.items()}


def paired(a: Values, b: Values, clusters: Clusters | None) -> tuple[dict[Any, float], dict[Any, float]]:
    """Both sides of pairs, as means of the clusters over the seeds that both sides have."""
    common = a.keys() & b.keys()
    first, second = ({key: value for key, value in side.items() if key in common} for side in (a, b))
    return cluster_means(first, clusters), cluster_means(second, clusters)


def overlapping(estimated: Estimate | None, clusters: Clusters | None) -> Estimate | None:
    """An estimate from clusters, with their overlap: the data that they share make its error larger."""
    return estimated if estimated is None or clusters is None else replace(estimated, overlap=clusters.overlap)


def estimate_of(values: Values, clusters: Clusters | None) -> Estimate | None:
    """Mean and spread of the clusters' means; without clusters, of the values."""
    return overlapping(estimate(list(cluster_means(values, clusters).values())), clusters)


def pair_key(run: Run, clusters: Clusters | None) -> Key:
    """The key by which a run is paired."""
    return run.seed if clusters is None else (clusters.of(run.config), run.seed)


def is_for_each(run: Run, clusters: Clusters | None) -> bool:
    """True if a run has settings from a search that chose for each cluster."""
    tuned = run.record.get("tuned") or {}
    return clusters is not None and bool(tuned) and tuned.get("weight", run.weight) == run.weight


def chosen_for_each(runs: Sequence[Run], clusters: Clusters) -> tuple[float | None, tuple[tuple[str, Any], ...]]:
    """λ of runs that a search chose for each cluster, None if it differs between them; and all chosen
    settings, with "for each …" as the value of those that differ."""
    tuned = [{**(run.record.get("tuned") or {}), "weight": run.weight} for run in runs]
    values = {name: {setting.get(name) for setting in tuned} for name in sorted(tuned[0])}
    same = {name: next(iter(values[name])) for name in values if len(values[name]) == 1}
    varying = {f"{name}s": f"for each {clusters.field}" for name in values if name not in same}
    chosen = {**same, **varying}
    return same.get("weight"), tuple((name, value) for name, value in chosen.items() if value is not None)

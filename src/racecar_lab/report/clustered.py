"""Statistics of runs that come in clusters, such as folds: the mean of each cluster is one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import mean
from typing import Any

from racecar_lab.clusters import Clusters
from racecar_lab.report.statistics import Estimate, estimate

Key = Any
"""The key by which runs are paired: the seed, or (cluster, seed) if there are clusters."""
Values = Mapping[Key, float]


def cluster_means(values: Values, clusters: Clusters | None) -> dict[Any, float]:
    """Cluster → mean of its values over the seeds. If ``clusters`` is None, the values are returned as they are."""
    if clusters is None:
        return dict(values)
    members: dict[Any, list[float]] = {}
    for (cluster, _), value in values.items():
        members.setdefault(cluster, []).append(value)
    return {cluster: mean(cluster_values) for cluster, cluster_values in members.items()}


def paired(a: Values, b: Values, clusters: Clusters | None) -> tuple[dict[Any, float], dict[Any, float]]:
    """The values of two sets of runs for the keys that both have, so that they can be compared in pairs; if there are
    clusters, cluster → mean over these keys."""
    common = a.keys() & b.keys()
    first, second = ({key: value for key, value in side.items() if key in common} for side in (a, b))
    return cluster_means(first, clusters), cluster_means(second, clusters)


def overlapping(estimated: Estimate | None, clusters: Clusters | None) -> Estimate | None:
    """An estimate whose overlap is that of the clusters: its standard error is larger, because clusters share data.
    Without clusters it stays as it is."""
    return estimated if estimated is None or clusters is None else replace(estimated, overlap=clusters.overlap)


def estimate_of(values: Values, clusters: Clusters | None) -> Estimate | None:
    """Mean and standard deviation of the clusters' means; if ``clusters`` is None, of the values themselves."""
    return overlapping(estimate(list(cluster_means(values, clusters).values())), clusters)

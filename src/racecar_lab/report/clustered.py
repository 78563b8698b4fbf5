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

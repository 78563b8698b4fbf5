"""Groups of runs that differ in the seed alone, for tables, figures, claims and documents."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any, TypeVar

from racecar_lab.clusters import Clusters
from racecar_lab.experiment import Paper
from racecar_lab.report.clustered import Key, estimate_of
from racecar_lab.report.settings import Setting, differing, has, label, plain
from racecar_lab.report.statistics import Estimate
from racecar_lab.running.run import Run
from racecar_lab.training.variants import VARIANTS

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Metric = tuple[str, str]
"""Name of a stage, and name of a metric that was measured after it."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one stage that differ only in the seed, and in the cluster if there are clusters."""

    setting: Setting
    """Names and values of the configuration fields in which the groups of an experiment differ."""
    stage: str
    variant: str
    weight: float | None
    tuned: Setting
    """Settings that a search chose for this variant; they replace those of ``config``."""
    all_runs: Mapping[Key, Run]
    """Seed, or (cluster, seed) → run; diverged runs are among them."""
    clusters: Clusters | None = None

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The configuration of one of the runs; the others differ from it in their cluster alone."""
        return next(iter(self.all_runs.values())).config

    @cached_property
    def runs(self) -> Mapping[Key, Run]:
        """Seed, or (cluster, seed) → run, of the runs that did not diverge."""
        return {key: run for key, run in self.all_runs.items() if run.finished}

    @property
    def diverged(self) -> list[Key]:
        """Seeds, or (cluster, seed), of the runs that diverged, in this stage or in the one that it starts from."""
        return [key for key, run in self.all_runs.items() if not run.finished]

    @property
    def dead(self) -> list[Key]:
        """Seeds, or (cluster, seed), of the runs that did not diverge, but whose net is dead."""
        return [key for key, run in self.runs.items() if run.dead]

    @property
    def broken(self) -> list[Key]:
        """Seeds, or (cluster, seed), of the runs that diverged or whose net is dead."""
        return [*self.diverged, *self.dead]

    @property
    def broken_text(self) -> str:
        """The broken runs in words, such as "1 of 5 diverged, 2 of 5 dead"; empty if there are none."""
        counts = {"diverged": len(self.diverged), "dead": len(self.dead)}
        return ", ".join(f"{count} of {len(self.all_runs)} {kind}" for kind, count in counts.items() if count)

    @property
    def regularised(self) -> bool:
        """True if the regulariser was on in this stage."""
        return any(run.record.get("regularised") for run in self.runs.values())

    def values(self, metric: str) -> dict[Key, float]:
        """Seed, or (cluster, seed) → value of a metric, for the runs that did not diverge and have it."""
        return {key: float(run.metrics[metric]) for key, run in self.runs.items() if metric in run.metrics}

    def mean_of(self, metric: str, without: Collection[Key] = ()) -> Estimate | None:
        """Mean and standard deviation of a metric over the runs that did not diverge, without those whose keys are in
        ``without``; if there are clusters, over the clusters' means."""
        values = {key: value for key, value in self.values(metric).items() if key not in without}
        return estimate_of(values, self.clusters)

    def matches(self, where: Mapping[str, Any]) -> bool:
        """True if the group's configuration has the values ``where``, name → value; a frozenset allows any of its
        members."""
        return has(self.config, where)


def gather(runs: Iterable[Run], clusters: Clusters | None = None) -> list[Group]:
    """Group the runs of one experiment, finished and diverged ones, in the order in which a page shows them: by
    setting, stage, variant and λ.

    Of records that agree in all of these and in the seed, the newest counts. The clusters of a setting are one group,
    also if a search chose for each of them.
    """
    runs = sorted(runs, key=lambda run: (str(run.record["made"].get("finished") or ""), run.id))
    settings = differing([run.config for run in runs], () if clusters is None else (clusters.field,))
    members: dict[tuple[Any, ...], dict[Key, Run]] = {}
    for run, setting in zip(runs, settings, strict=True):
        key = run.seed if clusters is None else (clusters.of(run.config), run.seed)
        identity = setting, run.stage, run.variant, *_choice(run, clusters)
        members.setdefault(identity, {})[key] = run
    depths = _depths(runs)

    def order(identity: tuple[Any, ...]) -> tuple[Any, ...]:
        setting, stage, variant, weight, tuned = identity
        known = [*VARIANTS, variant].index(variant), variant
        weight = -1.0 if weight is None else weight
        return _sortable(setting), (depths[stage], stage), known, weight, _sortable(tuned or ())

    return [_group(identity, members[identity], clusters) for identity in sorted(members, key=order)]


def collect(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group the values of (key, value) pairs: key → its values, in the order of the pairs."""
    values: dict[K, list[V]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


def printed_value(paper: Sequence[Paper], group: Group, metric: str) -> Paper | None:
    """The number that the paper prints for a metric of a group, None if there is none; if several match, the one with
    the most conditions on the configuration."""
    wanted = metric, group.stage, group.variant
    matching = [
        value for value in paper if (value.metric, value.stage, value.variant) == wanted and group.matches(value.where)
    ]
    return max(matching, key=lambda value: len(value.where), default=None)


def config_with_tuned(run: Run) -> dict[str, Any]:
    """The configuration of a run; field "tuned" is True if a search chose some of the settings."""
    return {**run.config, "tuned": bool(run.record.get("tuned"))}


def by_setting(runs: Sequence[Run], but: Collection[str] = ()) -> dict[str, list[Run]]:
    """Text of a configuration, such as " (optimiser = sgd)" → its finished runs. The text has the fields in which
    configurations differ, without those named in ``but``; runs with settings from a search are separate."""
    runs = [run for run in runs if run.finished]
    texts = map(label, differing([config_with_tuned(run) for run in runs], but))
    names = [f" ({text})" if text else "" for text in texts]
    return dict(sorted(collect(zip(names, runs, strict=True)).items()))


def by_variant(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Variant, or variant and λ → its finished runs by seed, in the order of ``VARIANTS``, then an experiment's own.
    λ is added if there are several, unless all were chosen by a search, for example for each fold."""
    groups: dict[str, list[Run]] = {}
    for name in dict.fromkeys([*VARIANTS, *(run.variant for run in runs)]):
        members = [run for run in runs if run.variant == name and run.finished]
        tuned = all("weight" in run.record.get("tuned", {}) for run in members)
        several = len({run.weight for run in members}) > 1 and not tuned
        members.sort(key=lambda run: (run.weight or 0.0, run.seed))
        groups |= collect((f"{name} {run.weight:g}" if several else name, run) for run in members)
    return groups


def _choice(run: Run, clusters: Clusters | None) -> tuple[float | None, Setting | None]:
    """λ of a run, and the settings that a search chose for it; (None, None) if the search chose for each cluster by
    itself."""
    tuned = run.record.get("tuned") or {}
    if clusters is not None and tuned and tuned.get("weight", run.weight) == run.weight:
        return None, None
    return run.weight, tuple((name, plain(value)) for name, value in sorted(tuned.items()))


def _group(identity: tuple[Any, ...], runs: Mapping[Key, Run], clusters: Clusters | None) -> Group:
    """A group made of its runs and of what they share: setting, stage, variant, λ and tuned settings. If a search chose
    for each cluster, the settings that are the same for all clusters keep their value; the value of the others is "for
    each …"."""
    setting, stage, variant, weight, tuned = identity
    if clusters is not None and tuned is None:
        choices = [{**run.record["tuned"], "weight": run.weight} for run in runs.values()]
        values = {name: {choice.get(name) for choice in choices} for name in sorted(choices[0])}
        same = {name: next(iter(several)) for name, several in values.items() if len(several) == 1}
        chosen = same | {f"{name}s": f"for each {clusters.field}" for name in values if name not in same}
        weight = same.get("weight")
        tuned = tuple((name, value) for name, value in chosen.items() if value is not None)
    return Group(setting, stage, variant, weight, tuned, dict(sorted(runs.items(), key=itemgetter(0))), clusters)


def _depths(runs: Sequence[Run]) -> dict[str, int]:
    """Stage → number of stages that come before it: 0 if it starts from fresh weights."""
    by_id, depths = {run.id: run for run in runs}, {run.stage: 0 for run in runs}
    for run in runs:
        depth, parent = 0, by_id.get(run.record.get("parent") or "")
        while parent is not None and depth < len(by_id):  # a record made by hand may be its own parent
            depth, parent = depth + 1, by_id.get(parent.record.get("parent") or "")
        depths[run.stage] = max(depth, depths[run.stage])
    return depths


def _sortable(setting: Setting) -> list[tuple[int, float, str]]:
    """A key that sorts settings, numbers before texts."""
    return [(0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value)) for _, value in setting]

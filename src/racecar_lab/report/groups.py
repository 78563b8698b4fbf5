"""Grouping of runs, for tables, figures, summaries and documents: runs that differ only in the seed, runs of one
setting, runs of one variant."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from racecar_lab.clusters import Clusters
from racecar_lab.experiment import Paper
from racecar_lab.report.clustered import Key, chosen_for_each, estimate_of, is_for_each, pair_key
from racecar_lab.report.statistics import Estimate
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import LOSS, loss_name
from racecar_lab.training.variants import VARIANTS

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Setting = tuple[tuple[str, Any], ...]
"""Names and values of the fields of the configuration that are not the same in all runs of an experiment."""
EACH: Setting = (("tuned", "for each cluster"),)
"""Stands for the tuned settings of a group if a search chose them for each cluster."""
Metric = tuple[str, str]
"""Stage and name of a metric."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one stage that differ only in the seed, and in the cluster if there are clusters."""

    setting: Setting
    stage: str
    variant: str
    weight: float | None
    tuned: Setting
    """Settings that a search chose for this variant; they replace those of ``config``."""
    runs: Mapping[Key, Run]
    """Seed, or cluster and seed → run; without those that diverged."""
    diverged: tuple[Key, ...]
    """Keys of runs that diverged, in this stage or in the one that it starts from."""
    config: Mapping[str, Any]
    clusters: Clusters | None = None

    @property
    def total(self) -> int:
        """Number of runs, with those that diverged."""
        return len(self.runs) + len(self.diverged)

    @property
    def dead(self) -> list[Key]:
        """Keys of runs that did not diverge, but whose net is dead."""
        return [key for key, run in self.runs.items() if run.dead]

    @property
    def lost(self) -> list[Key]:
        """Keys of runs that diverged or whose net is dead."""
        return [*self.diverged, *self.dead]

    @property
    def seeds(self) -> set[Key]:
        """Keys of all runs."""
        return {*self.runs, *self.diverged}

    @property
    def told_lost(self) -> str:
        """The lost runs in words, such as "1 of 5 diverged, 2 of 5 dead"; empty if there are none."""
        counts = {"diverged": len(self.diverged), "dead": len(self.dead)}
        return ", ".join(f"{count} of {self.total} {kind}" for kind, count in counts.items() if count)

    @property
    def regularised(self) -> bool:
        """True if the regulariser was on in this stage."""
        return any(run.record.get("regularised") for run in self.runs.values())

    def values(self, metric: str) -> dict[Key, float]:
        """Seed, or cluster and seed → value of a metric."""
        return {key: float(run.metrics[metric]) for key, run in self.runs.items() if metric in run.metrics}

    def mean_of(self, metric: str, without: Collection[Key] = ()) -> Estimate | None:
        """Mean and spread of a metric; if there are clusters, over their means.

        Args:
            without: keys of runs to leave out.
        """
        values = {key: value for key, value in self.values(metric).items() if key not in without}
        return estimate_of(values, self.clusters)

    def matches(self, where: Mapping[str, Any]) -> bool:
        """True if the configuration has these values; a frozenset allows any of its members."""
        return has(self.config, where)


@dataclass(frozen=True, eq=False)
class Groups:
    """All groups of an experiment, in the order in which a page shows them."""

    groups: Sequence[Group]
    diverged: Sequence[Run]
    left_out: int
    """Records that a later one of the same setting, stage, variant, λ and seed replaces."""
    common: Mapping[str, Any]
    """The part of the configuration that all runs share."""

    def setting(self, run: Run) -> Setting:
        """The fields in which the configurations of the experiment's runs differ, with a run's values."""
        return tuple((name, plain(value)) for name, value in run.config.items() if name not in self.common)

    @property
    def settings(self) -> list[Setting]:
        """The settings of all groups, each once."""
        return list(dict.fromkeys(group.setting for group in self.groups))

    @property
    def runs(self) -> list[Run]:
        """The runs of all groups, without those that diverged."""
        return [run for group in self.groups for run in group.runs.values()]

    def of(self, setting: Setting | None = None, stage: str | None = None, variant: str | None = None) -> list[Group]:
        """The groups of a setting, stage and variant; None means any."""
        return [
            group
            for group in self.groups
            if (setting is None or group.setting == setting)
            and (stage is None or group.stage == stage)
            and (variant is None or group.variant == variant)
        ]


def collect(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Key → values, both in the order of the pairs."""
    values: dict[K, list[V]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


def telling(configs: Sequence[Mapping[str, Any]], but: Collection[str] = ()) -> list[Setting]:
    """For each configuration, its values of the fields that are not the same in all; fields in ``but`` are left out."""
    names = dict.fromkeys(name for config in configs for name in config if name not in but)
    values = {name: [plain(config.get(name)) for config in configs] for name in names}
    varying = [name for name in names if len(set(values[name])) > 1]
    return [tuple((name, values[name][i]) for name in varying) for i in range(len(configs))]


def has(config: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """True if a configuration has these values; a frozenset allows any of its members."""
    return all(
        name in config and plain(config[name]) in (wanted if isinstance(wanted, frozenset) else [plain(wanted)])
        for name, wanted in where.items()
    )


def printed_value(paper: Sequence[Paper], group: Group, metric: str) -> Paper | None:
    """The paper's number for a group; if several match, the one with the most conditions on the configuration."""
    wanted = metric, group.stage, group.variant
    matching = [
        value for value in paper if (value.metric, value.stage, value.variant) == wanted and group.matches(value.where)
    ]
    return max(matching, key=lambda value: len(value.where), default=None)


def asked(run: Run) -> dict[str, Any]:
    """The configuration of a run; field "tuned" is True if a search chose some of the settings."""
    return {**run.config, "tuned": bool(run.record.get("tuned"))}


def by_setting(runs: Sequence[Run], but: Collection[str] = ()) -> dict[str, list[Run]]:
    """Text of a configuration, such as " (optimiser = sgd)" → its finished runs. The text has the fields in which
    configurations differ, without those named in ``but``; runs with settings from a search are separate."""
    runs = [run for run in runs if run.finished]
    texts = map(label, telling([asked(run) for run in runs], but))
    names = [f" ({text})" if text else "" for text in texts]
    return dict(sorted(collect(zip(names, runs, strict=True)).items()))


def by_variant(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Variant, or variant and λ → its finished runs by seed, in the order of ``VARIANTS``. λ is
    added if there are several, unless all were chosen by a search, for example for each fold."""
    groups: dict[str, list[Run]] = {}
    for name in VARIANTS:
        members = [run for run in runs if run.variant == name and run.finished]
        tuned = all("weight" in run.record.get("tuned", {}) for run in members)
        several = len({run.weight for run in members}) > 1 and not tuned
        members.sort(key=lambda run: (run.weight or 0.0, run.seed))
        groups |= collect((f"{name} {run.weight:g}" if several else name, run) for run in members)
    return groups


class Identity(NamedTuple):
    """The properties that all runs of a group have in common."""

    setting: Setting
    stage: str
    variant: str
    weight: float | None
    tuned: Setting


def gather(runs: Iterable[Run], clusters: Clusters | None = None) -> Groups:
    """Group the runs of one experiment, finished and diverged ones. The clusters of a setting are one group, also if a
    search chose for each of them."""
    runs = sorted(runs, key=lambda run: (str(run.record["made"].get("finished") or ""), run.id))
    apart = () if clusters is None else (clusters.field,)
    settings = telling([run.config for run in runs], apart)
    newest = {
        (_identity(run, setting, clusters), pair_key(run, clusters)): run
        for run, setting in zip(runs, settings, strict=True)
    }
    members = collect((identity, (pair, run)) for (identity, pair), run in newest.items())
    depths = _depths(runs)
    ordered = sorted(members, key=lambda identity: _order(identity, depths))
    groups = [_group(identity, dict(sorted(members[identity], key=itemgetter(0))), clusters) for identity in ordered]
    config, varying = (runs[0].config, dict(settings[0])) if runs else ({}, {})
    common = {name: plain(value) for name, value in config.items() if name not in varying and name not in apart}
    diverged = [run for run in newest.values() if not run.finished]
    return Groups(groups, diverged, len(runs) - len(newest), common)


def label(setting: Setting) -> str:
    """A setting in words, such as "net = linear, sizes = 784 128 2"."""
    return ", ".join(f"{name} = {_value_text(value)}" for name, value in with_loss(setting))


def with_loss(setting: Setting) -> Setting:
    """A setting whose fields of the loss are replaced by one, ("loss", name), if it has all of them and the loss has a
    name."""
    loss = loss_name(dict(setting)) if set(LOSS) <= dict(setting).keys() else None
    if loss is None:
        return setting
    return (*((name, value) for name, value in setting if name not in LOSS), ("loss", loss))


def plain(value: Any) -> Any:
    """A value of a configuration in a form for comparisons: hashable, and the same before and after JSON."""
    if isinstance(value, dict):
        return tuple(sorted((name, plain(part)) for name, part in value.items()))
    return tuple(map(plain, value)) if isinstance(value, (list, tuple)) else value


def _value_text(value: Any) -> str:
    """A value of a setting as text."""
    if isinstance(value, tuple):
        return " ".join(map(_value_text, value)) or "none"
    return "not set" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _identity(run: Run, setting: Setting, clusters: Clusters | None) -> Identity:
    """The identity of a run's group."""
    if is_for_each(run, clusters):
        return Identity(setting, run.stage, run.variant, None, EACH)
    tuned = sorted((run.record.get("tuned") or {}).items())
    return Identity(setting, run.stage, run.variant, run.weight, tuple((name, plain(value)) for name, value in tuned))


def _group(identity: Identity, runs: Mapping[Key, Run], clusters: Clusters | None) -> Group:
    """A group from its runs, by seed or by cluster and seed."""
    setting, stage, variant, weight, tuned = identity
    if clusters is not None and tuned == EACH:
        weight, tuned = chosen_for_each(list(runs.values()), clusters)
    finished = {pair: run for pair, run in runs.items() if run.finished}
    diverged = tuple(pair for pair in runs if pair not in finished)
    config = next(iter(runs.values())).config
    return Group(setting, stage, variant, weight, tuned, finished, diverged, config, clusters)


def _depths(runs: Sequence[Run]) -> dict[str, int]:
    """Stage → number of stages before it."""
    stages = {run.id: run.stage for run in runs}
    parents = {run.stage: stages[parent] for run in runs if (parent := run.record.get("parent")) in stages}
    depths = {}
    for stage in set(stages.values()):
        depths[stage], ancestor = 0, stage
        while ancestor in parents and depths[stage] < len(parents):
            ancestor, depths[stage] = parents[ancestor], depths[stage] + 1
    return depths


def _order(identity: Identity, depths: Mapping[str, int]) -> tuple[Any, ...]:
    """The key by which groups are sorted: setting, stage by depth, variant as in ``VARIANTS``, λ, tuned."""
    known = [*VARIANTS, identity.variant]
    return (
        [_sortable(value) for _, value in identity.setting],
        (depths[identity.stage], identity.stage),
        (known.index(identity.variant), identity.variant),
        -1.0 if identity.weight is None else identity.weight,
        [_sortable(value) for _, value in identity.tuned],
    )


def _sortable(value: Any) -> tuple[int, float, str]:
    """A key that sorts numbers before texts."""
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))

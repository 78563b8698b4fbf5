"""The texts of a page about an experiment, besides its results: data, loss, initial weights, cost, and the meaning of
names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from racecar_lab.config import C
from racecar_lab.experiment import Experiment
from racecar_lab.report.costs import step_cost
from racecar_lab.report.groups import Group
from racecar_lab.report.metrics import meanings
from racecar_lab.training.loss_config import DEFAULT, LOSS, loss_name
from racecar_lab.training.variants import VARIANTS, OwnVariant, variant

STARTS = {"torch": "PyTorch's own", "he": "He's", "orthogonal": "orthogonal"}
"""Value of a configuration's field ``start`` → the initial weights in words."""


def config_of(experiment: Experiment, config: Mapping[str, Any]) -> Any:
    """The configuration of a record as an object of the experiment's Config; None if its values are not valid now."""
    known = {field.name for field in fields(experiment.Config)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in config.items() if name in known
    }
    try:
        return experiment.Config(**values)
    except (TypeError, ValueError):
        return None


def configs_of(experiment: Experiment, groups: Sequence[Group]) -> list[Any]:
    """The different configurations of groups, as objects of the experiment's Config."""
    configs = (config_of(experiment, group.config) for group in groups)
    return list(dict.fromkeys(config for config in configs if config is not None))


def about(experiment: Experiment[Any], configs: Sequence[Any], groups: Sequence[Group]) -> dict[str, str]:
    """Heading → text about the data, the loss, the initial weights and the cost, shown before the results; a text that
    is not known is left out."""
    texts = {
        "data": map(experiment.reporting.describe_data, configs),
        "reverse loss": (loss_of(experiment, config) for config in configs),
        "first weights": (first_weights(experiment, config) for config in configs),
        "pairs": [] if experiment.clusters is None else [experiment.clusters.description],
        "a step costs": [step_cost(groups)],
    }
    joined = {name: "; ".join(dict.fromkeys(filter(None, several))) for name, several in texts.items()}
    return {name: text for name, text in joined.items() if text}


def loss_of(experiment: Experiment[C], config: C) -> str:
    """The reverse loss in words, such as "scale relative, gradient both, reduction mean (that of before)"."""
    reverse = experiment.reverse(config)
    arguments = {name: reverse.get(name, DEFAULT[name]) for name in LOSS}
    name = loss_name(arguments)
    return ", ".join(f"{key} {value}" for key, value in arguments.items()) + (f" ({name})" if name else "")


def first_weights(experiment: Experiment[Any], config: Any) -> str:
    """The initial weights in words: those of the configuration's ``start``, otherwise the experiment's."""
    return STARTS.get(getattr(config, "start", ""), experiment.reporting.first_weights)


def glossary(experiment: Experiment[Any], configs: Sequence[Any], groups: Sequence[Group]) -> dict[str, str]:
    """Name → meaning, for the variants and stages that were run and the metrics that were measured."""
    names = dict.fromkeys(group.variant for group in groups)
    known = [experiment.variant(name) for name in experiment.variants if name in names]
    experiments_own = [one for one in known if isinstance(one, OwnVariant)]
    variants = [*(variant(name, experiment.joins) for name in names if name in VARIANTS), *experiments_own]
    reached = {group.stage for group in groups}
    stages = dict.fromkeys(stage for config in configs for stage in experiment.stages(config))
    return {
        **{one.name: one.title for one in variants},
        **{f"stage {stage.name}": stage.description for stage in stages if stage.name in reached},
        **meanings(name for group in groups for run in group.runs.values() for name in run.metrics),
    }

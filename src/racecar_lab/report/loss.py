"""The configuration of a record, and the reverse loss that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from racecar_lab.config import C
from racecar_lab.experiment import Experiment
from racecar_lab.training.loss_config import DEFAULT, LOSS, loss_name


def config_of(experiment: Experiment, config: Mapping[str, Any]) -> Any:
    """The configuration that a record holds; None if it comes from another version of the experiment."""
    known = {one.name for one in fields(experiment.Config)}
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in config.items() if name in known
    }
    try:
        return experiment.Config(**values)
    except (TypeError, ValueError):
        return None


def loss_of(experiment: Experiment[C], config: C) -> str:
    """As "scale relative, gradient both, reduction mean (that of before)"."""
    given = experiment.reverse(config)
    arguments = {name: given.get(name, DEFAULT[name]) for name in LOSS}
    name = loss_name(arguments)
    return ", ".join(f"{key} {value}" for key, value in arguments.items()) + (f" ({name})" if name else "")

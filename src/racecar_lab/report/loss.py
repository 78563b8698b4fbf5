"""The configuration of a record, and its reverse loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from racecar_lab.config import C
from racecar_lab.experiment import Experiment
from racecar_lab.training.loss_config import DEFAULT, LOSS, loss_name


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


def loss_of(experiment: Experiment[C], config: C) -> str:
    """The reverse loss in words, such as "scale relative, gradient both, reduction mean (that of before)"."""
    reverse = experiment.reverse(config)
    arguments = {name: reverse.get(name, DEFAULT[name]) for name in LOSS}
    name = loss_name(arguments)
    return ", ".join(f"{key} {value}" for key, value in arguments.items()) + (f" ({name})" if name else "")

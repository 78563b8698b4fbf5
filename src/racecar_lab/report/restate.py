"""Which loss a run had, and its λ as every page prints it: of the mean over the constrained layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from racecar_lab.config import C
from racecar_lab.experiment import Experiment
from racecar_lab.running.run import Run
from racecar_lab.training.loss_config import DEFAULT, LOSS, loss_name
from racecar_lab.training.variants import VARIANTS


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


def times(experiment: Experiment[C], config: C, name: str) -> int:
    """What a variant's coefficient is multiplied by to be λ of the mean over the constrained layers, as it is printed.

    The number of these layers, where the loss is a sum over them; 1 where it is their mean, for the paper's own loss,
    whose λ is printed as the paper has it, and for variants whose coefficient is no λ.
    """
    which, loss = VARIANTS.get(name), {"reduction": DEFAULT["reduction"]} | experiment.reverse(config)
    if which is None or which.kind != "reverse" or loss["reduction"] == "mean" or loss.get("scale") == "sum":
        return 1
    return 1 if which.mode == "input" else experiment.layers(config)


def restated(run: Run, experiment: Experiment) -> Run:
    """A run as pages show it: one whose loss is a sum over the layers as the same loss written as their mean. Its file
    stays as it is."""
    return Run(_restated(run.record, experiment), run.store)


def _restated(record: dict[str, Any], experiment: Experiment) -> dict[str, Any]:
    given = Run(record).config
    config = config_of(experiment, given) if {"reduction", "strength"} <= given.keys() else None
    if config is None or (factor := times(experiment, config, "RR")) == 1:
        return record
    # The setting is the same for all variants, or they could not be held against each other.
    given |= {"reduction": "mean", "strength": factor * given["strength"]}
    own, tuned = times(experiment, config, str(record["variant"])), dict(record.get("tuned") or {})
    changes: dict[str, Any] = {"config": given}
    if record["coefficient"] is not None:
        changes["coefficient"] = own * record["coefficient"]
    if "coefficient" in tuned:
        changes["tuned"] = {**tuned, "coefficient": own * tuned["coefficient"]}
    if also := record.get("also"):
        parts = ("config", "tuned")
        found = [_restated({**record, "also": None, **one}, experiment) for one in also]
        changes["also"] = [{**one, **{name: new[name] for name in parts}} for one, new in zip(also, found, strict=True)]
    return {**record, **changes}

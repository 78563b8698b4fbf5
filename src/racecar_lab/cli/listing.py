"""``racecar list``: the table of experiments and the data that each one needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from racecar.support.console import show

if TYPE_CHECKING:
    from racecar_lab.experiment import Experiment


def list_experiments() -> None:
    """List the experiments, and the data that each one needs."""
    from racecar_lab.experiments import EXPERIMENTS

    rows = [
        (
            experiment.name,
            experiment.title,
            experiment.reporting.section,
            _needs(experiment),
            ",".join(experiment.variants),
            str(experiment.seeds),
        )
        for experiment in EXPERIMENTS.values()
    ]
    hint = "Data sets: `racecar data list` says whether they are here, `racecar data fetch NAME` gets one."
    show(("name", "what", "paper", "data", "variants", "seeds"), rows, hint)


def _needs(experiment: Experiment) -> str:
    """Names of the data sets of an experiment, and of those of its short form if they differ."""
    configs = (experiment.Config(**settings) for settings in ({}, experiment.quick.settings_shipped))
    usual, quick = (", ".join(source.name for source in experiment.sources(config)) or "none" for config in configs)
    return usual if usual == quick else f"{usual} (quick: {quick})"

"""``racecar list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from racecar.support.console import show

if TYPE_CHECKING:
    from racecar_lab.experiment import Experiment


def list_experiments() -> None:
    """List the experiments, and the data that each one needs."""
    from racecar_lab.experiments import EXPERIMENTS

    rows = [
        (each.name, each.title, each.section, _needs(each), ",".join(each.variants), str(each.seeds))
        for each in EXPERIMENTS.values()
    ]
    last = "Data sets: `racecar data list` says whether they are here, `racecar data fetch NAME` gets one."
    show(("name", "what", "paper", "data", "variants", "seeds"), rows, last)


def _needs(experiment: Experiment) -> str:
    """Data sets, and those that the short form cannot do without where they are others."""
    short = {**experiment.quick, **experiment.quick_shipped}
    usual, quick = (", ".join(experiment.needs(experiment.Config(**how))) or "none" for how in ({}, short))
    return usual if usual == quick else f"{usual} (quick: {quick})"

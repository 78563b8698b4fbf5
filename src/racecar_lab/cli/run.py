"""``racecar list`` and ``racecar run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from racecar.support.console import show
from racecar_lab.cli.options import CommandOptions, Name, Out, Tuned, with_options
from racecar_lab.cli.perform import do
from racecar_lab.cli.settings import coefficients_of, config_of, folder_of, seeds_of, tuned_of, variants_of
from racecar_lab.running.engines.processes import warm_up

if TYPE_CHECKING:
    from racecar_lab.experiment import Experiment


def list_experiments() -> None:
    """List the experiments, and the data that each one needs."""
    from racecar_lab.experiments import EXPERIMENTS

    rows = [
        (one.name, one.title, one.section, _needs(one), ",".join(one.variants), str(one.seeds))
        for one in EXPERIMENTS.values()
    ]
    last = "Data sets: `racecar data list` says whether they are here, `racecar data fetch NAME` gets one."
    show(("name", "what", "paper", "data", "variants", "seeds"), rows, last)


def _needs(one: Experiment) -> str:
    """Data sets, and those that the short form cannot do without where they are others."""
    short = {**one.quick, **one.quick_shipped}
    usual, quick = (", ".join(one.needs(one.Config(**how))) or "none" for how in ({}, short))
    return usual if usual == quick else f"{usual} (quick: {quick})"


@with_options
def run_experiment(name: Name, options: CommandOptions, out: Out = None, tuned: Tuned = None) -> None:
    """Run an experiment: every variant, every seed, every stage. What is there already is skipped."""
    warm_up(options.engine, options.device, options.workers)
    from racecar_lab.experiments import experiment
    from racecar_lab.running.jobs import make_jobs

    one = experiment(name)
    config, chosen = config_of(one, options), variants_of(one, options)
    given = coefficients_of(one, options, chosen)
    found = tuned_of(tuned, one, config, chosen, options.settings or [])
    purpose = "quick" if options.quick else ""
    jobs = make_jobs(one, config, chosen, seeds_of(one, options), options.data, given, found, purpose)
    do(jobs, folder_of(out, name, jobs[0].purpose if jobs else purpose), options)

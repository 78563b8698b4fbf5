"""``racecar list`` and ``racecar run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from racecar.cli.console import show
from racecar.cli.lab import options
from racecar.cli.lab.settings import coefficients_of, config_of, folder_of, seeds_of, tuned_of, variants_of
from racecar.cli.lab.work import How, do
from racecar.lab.running.engines.processes import warm_up

if TYPE_CHECKING:
    from racecar.lab.experiment import Experiment


def list_experiments() -> None:
    """List the experiments, and the data that each one needs."""
    from racecar.lab.experiments import EXPERIMENTS

    rows = [
        (one.name, one.title, one.section, _needs(one), ",".join(one.variants), str(one.seeds))
        for one in EXPERIMENTS.values()
    ]
    last = "Data sets: `racecar data list` says whether they are here, `racecar data fetch NAME` gets one."
    show(("name", "what", "paper", "data", "variants", "seeds"), rows, last)


def _needs(one: Experiment) -> str:
    """Data sets, and those of the short form where they are others."""
    usual, quick = (", ".join(one.needs(one.Config(**how))) or "none" for how in ({}, one.quick))
    return usual if usual == quick else f"{usual} (quick: {quick})"


def run_experiment(
    name: options.Name,
    variants: options.Variants = "",
    seeds: options.Seeds = 0,
    first: options.First = 0,
    engine: options.Engine = "here",
    device: options.Device = "cpu",
    data: options.Data = None,
    out: options.Out = None,
    resume: options.Resume = False,
    quick: options.Quick = False,
    settings: options.Set = None,
    coefficient: options.Coefficient = None,
    tuned: options.Tuned = None,
    workers: options.Workers = 0,
    compile_step: options.Compile = False,
    every: options.Every = 60.0,
    address: options.Address = None,
    tensorboard: options.Tensorboard = False,
    graphs: options.Graphs = False,
) -> None:
    """Run an experiment: every variant, every seed, every stage. What is there already is skipped."""
    warm_up(engine, device, workers)
    from racecar.lab.experiments import experiment
    from racecar.lab.running.jobs import make_jobs

    one = experiment(name)
    config, chosen = config_of(one, quick, settings), variants_of(one, variants)
    given, found = coefficients_of(coefficient, chosen), tuned_of(tuned, one, config, chosen, settings or [])
    some, purpose = seeds_of(one, quick, seeds, first), "quick" if quick else ""
    jobs = make_jobs(one, config, chosen, some, data, given, found, purpose)
    how = How(engine, device, workers, address, resume, compile_step, every, tensorboard, graphs)
    do(jobs, folder_of(out, name, purpose), how)

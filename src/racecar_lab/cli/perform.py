"""Do jobs with the options of a command, and print the results."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from racecar.support import interrupts
from racecar.support.console import command, note
from racecar.support.processes import is_rank_zero
from racecar.support.source import commit
from racecar_lab.cli.options import CommandOptions
from racecar_lab.cli.summary import summary

if TYPE_CHECKING:
    from racecar_lab.running.engines.base import RunOptions
    from racecar_lab.running.job import Job


def run_options(options: CommandOptions, folder: Path) -> RunOptions:
    """Turn the options of a command into those of the engine. Options that the engine would ignore are refused."""
    from racecar_lab.running import runner
    from racecar_lab.running.engines.base import RunOptions
    from racecar_lab.running.record_writer import Maker
    from racecar_lab.training import distributed

    _check_device(options.device, options.engine)
    values = vars(options)
    common = {field.name: values[field.name] for field in fields(RunOptions) if field.name in values}
    maker = Maker(command=command(), engine=options.engine, commit=commit())
    engine_options = RunOptions(folder=folder, maker=maker, **common)
    try:
        runner.check(engine_options, options.engine)
    except ValueError:
        if not is_rank_zero():
            raise typer.Exit(2) from None
        raise
    if distributed.launched():  # the processes share every training
        return replace(engine_options, device=distributed.start(options.device), workers=1)
    return engine_options


def do(jobs: Sequence[Job], folder: Path, options: CommandOptions, quiet: bool = False) -> None:
    """Do the jobs of a command, and print a summary unless ``quiet``; raises ValueError if some failed."""
    from racecar_lab.own import NAMES
    from racecar_lab.running import runner
    from racecar_lab.running.jobs import with_earlier
    from racecar_lab.running.record import OTHER_DATA
    from racecar_lab.running.results import Store
    from racecar_lab.training import distributed

    refuse_other_data(with_earlier(jobs), options)
    resume_command = command() if options.resume else f"{command()} --resume"
    interrupts.advice = f"what was finished is in {folder}; to go on: {resume_command}"
    engine_options, store, all_jobs = run_options(options, folder), Store(folder), with_earlier(jobs)
    for job in all_jobs:
        if job.unfinished(store):
            if is_rank_zero():
                store.check()
            job.experiment.data(
                job.config, job.seed, job.folder
            )  # one message if data are missing, not one for each job
            break
    if options.budget:
        _print_budget(all_jobs, engine_options, options.engine)
        return
    finished = sum(len(job.stages) - len(job.unfinished(store)) for job in all_jobs)
    if finished and is_rank_zero():
        print(f"{finished} of {sum(len(job.stages) for job in all_jobs)} stages are there already", file=sys.stderr)
    if is_rank_zero() and (begun := [] if options.resume else runner.begun(all_jobs, engine_options, options.engine)):
        names = f"{begun[0]}" + (f" and {len(begun) - 1} more" if begun[1:] else "")
        note(f"begun before, and started anew for want of --resume: {names}")
    failures = runner.run(jobs, engine_options, options.engine)
    if is_rank_zero():
        if not quiet:
            if jobs and jobs[0].purpose:
                kind = "run on other data" if jobs[0].purpose == OTHER_DATA else f"{jobs[0].purpose} run"
                print(f"a {kind}: no evidence, and nothing of it is judged")
            print(summary(jobs, store))
            own_names = dict.fromkeys(NAMES[job.experiment.name] for job in all_jobs if job.experiment.name in NAMES)
            page = ["racecar", "report", str(folder), *(f"--experiment={name}" for name in own_names)]
            print(f"results: {folder}   page: {shlex.join(page)}")
        for failure in failures:
            print(f"racecar: {failure.job} failed: {failure.message}", file=sys.stderr)
    distributed.stop()
    if failures:
        raise ValueError(f"{len(failures)} of {len(all_jobs)} jobs failed; what was finished is in {folder}")


def _print_budget(jobs: Sequence[Job], options: RunOptions, engine: str) -> None:
    """Time the first steps of the experiment streams, and print the estimated time of every method and of all together;
    any other experiment is refused."""
    from racecar.support.table import table
    from racecar_lab.report.words import seconds
    from racecar_lab.running import runner

    if not jobs or runner.engine_of(jobs, options, engine) != "streams":
        raise ValueError("--budget: only streams is timed beforehand; leave it out")
    from racecar_lab.running.engines import streams

    budgets = streams.budget(jobs, options)
    rows = [[b.method, str(b.nets), str(b.steps), seconds(b.step_s), seconds(b.seconds)] for b in budgets]
    print(table(["method", "nets", "steps", "step", "all steps"], rows))
    total = seconds(sum(budget.seconds for budget in budgets))
    print(f"in all {total}, one method after the other; nothing of it was kept")


def refuse_other_data(jobs: Sequence[Job], options: CommandOptions) -> None:
    """Refuse data files that are not the published ones, unless the user allows them by ``--other-data``."""
    from racecar_lab.datasets import data_folder

    for job in jobs:
        if job.other_data and not options.other_data:
            file, checksum = job.other_data[0].rsplit(" ", 1)
            names = " ".join(source.name for source in job.experiment.sources(job.config))
            raise ValueError(
                f"{data_folder(job.folder) / file} is damaged or another file than the published one ({checksum}): "
                f"racecar data check {names} says more; --other-data takes it all "
                "the same, for results with names of their own that are no evidence"
            )


def _check_device(device: str, engine: str) -> None:
    """Raise a ValueError if torch cannot train on a device on this machine."""
    import torch

    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(f"--device {device!r} is none: use cpu, cuda, cuda:1, …") from None
    if chosen.type == "cpu" or (chosen.type == "cuda" and engine == "ray"):  # a cluster may have GPUs
        return
    accelerator, count = torch.accelerator.current_accelerator(), torch.accelerator.device_count()
    devices = [f"{accelerator.type}:{i}" for i in range(count)] if accelerator else []
    if f"{chosen.type}:{chosen.index or 0}" not in devices:
        raise ValueError(f"--device {device}: this torch cannot train there; use {', '.join(['cpu', *devices])}")

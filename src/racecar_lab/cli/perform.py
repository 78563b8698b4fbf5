"""Do jobs as the options say, and say what came of them."""

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
    from racecar_lab.running.jobs import Job


def run_options(options: CommandOptions, folder: Path) -> RunOptions:
    """How jobs are done, for the laboratory. What would be forgotten on the way is refused."""
    from racecar_lab.running import runner
    from racecar_lab.running.engines.base import RunOptions
    from racecar_lab.running.work import Maker
    from racecar_lab.training import distributed

    _check_device(options.device, options.engine)
    values = vars(options)
    same = {field.name: values[field.name] for field in fields(RunOptions) if field.name in values}
    made = RunOptions(folder=folder, maker=Maker(command(), options.engine, commit()), **same)
    try:
        runner.check(made, options.engine)
    except ValueError:
        if not is_rank_zero():
            raise typer.Exit(2) from None
        raise
    if distributed.launched():  # the processes share every training
        return replace(made, device=distributed.start(options.device), workers=1)
    return made


def do(jobs: Sequence[Job], folder: Path, options: CommandOptions, quiet: bool = False) -> None:
    """Do the jobs, and say what came of them."""
    from racecar_lab.own import NAMES
    from racecar_lab.running import runner
    from racecar_lab.running.jobs import with_earlier
    from racecar_lab.running.record import OTHER_DATA
    from racecar_lab.running.results import Store
    from racecar_lab.training import distributed

    refuse_other_data(with_earlier(jobs), options)
    again = command() if options.resume else f"{command()} --resume"
    interrupts.advice = f"what was finished is in {folder}; to go on: {again}"
    how, store, every = run_options(options, folder), Store(folder), with_earlier(jobs)
    for job in every:
        if job.unfinished(store):
            if is_rank_zero():
                store.check()
            job.experiment.data(job.config, job.seed, job.folder)  # where they are missing, that is said once
            break
    if options.budget:
        _tell_budget(every, how, options.engine)
        return
    there = sum(len(job.stages) - len(job.unfinished(store)) for job in every)
    if there and is_rank_zero():
        print(f"{there} of {sum(len(job.stages) for job in every)} stages are there already", file=sys.stderr)
    if is_rank_zero() and (begun := [] if options.resume else runner.begun(every, how, options.engine)):
        which = f"{begun[0]}" + (f" and {len(begun) - 1} more" if begun[1:] else "")
        note(f"begun before, and started anew for want of --resume: {which}")
    failures = runner.run(jobs, how, options.engine)
    if is_rank_zero():
        if not quiet:
            if jobs and jobs[0].purpose:
                kind = "run on other data" if jobs[0].purpose == OTHER_DATA else f"{jobs[0].purpose} run"
                print(f"a {kind}: no evidence, and nothing of it is judged")
            print(summary(jobs, store))
            own = dict.fromkeys(NAMES[job.experiment.name] for job in every if job.experiment.name in NAMES)
            page = ["racecar", "report", str(folder), *(f"--experiment={name}" for name in own)]
            print(f"results: {folder}   page: {shlex.join(page)}")
        for failure in failures:
            print(f"racecar: {failure.job} failed: {failure.message}", file=sys.stderr)
    distributed.stop()
    if failures:
        raise ValueError(f"{len(failures)} of {len(every)} jobs failed; what was finished is in {folder}")


def _tell_budget(jobs: Sequence[Job], how: RunOptions, engine: str) -> None:
    """Print the time that every method would take, and all of them together."""
    from racecar.support.table import table
    from racecar_lab.report.words import seconds
    from racecar_lab.running import runner

    if not jobs or runner.engine_of(jobs, how, engine) != "streams":
        raise ValueError("--budget: only streams is timed beforehand; leave it out")
    from racecar_lab.running.engines import streams

    methods = streams.budget(jobs, how)
    rows = [[one.method, str(one.nets), str(one.steps), seconds(one.step_s), seconds(one.seconds)] for one in methods]
    print(table(["method", "nets", "steps", "step", "all steps"], rows))
    print(f"in all {seconds(sum(one.seconds for one in methods))}, one method after the other; nothing of it was kept")


def refuse_other_data(jobs: Sequence[Job], options: CommandOptions) -> None:
    """Refuse files that are not the published ones, unless the user takes them."""
    from racecar_lab.datasets import data_folder

    for job in jobs:
        if job.other_data and not options.other_data:
            file, checksum = job.other_data[0].rsplit(" ", 1)
            raise ValueError(
                f"{data_folder(job.folder) / file} is damaged or another file than the published one ({checksum}): "
                f"racecar data check {' '.join(job.experiment.needs(job.config))} says more; --other-data takes it all "
                "the same, for results with names of their own that are no evidence"
            )


def _check_device(device: str, engine: str) -> None:
    import torch

    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(f"--device {device!r} is none: use cpu, cuda, cuda:1, …") from None
    if chosen.type == "cpu" or (chosen.type == "cuda" and engine == "ray"):  # a cluster may have some
        return
    accelerator, count = torch.accelerator.current_accelerator(), torch.accelerator.device_count()
    devices = [f"{accelerator.type}:{i}" for i in range(count)] if accelerator else []
    if f"{chosen.type}:{chosen.index or 0}" not in devices:
        raise ValueError(f"--device {device}: this torch cannot train there; use {', '.join(['cpu', *devices])}")

"""Do jobs as the options say, and say what came of them."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from racecar.cli.console import command, note
from racecar.cli.lab.summary import summary
from racecar.support import interrupts

if TYPE_CHECKING:
    from racecar.lab.running.engines.base import Plan
    from racecar.lab.running.jobs import Job


@dataclass(frozen=True)
class How:
    """The options that say how jobs are done."""

    engine: str
    device: str
    workers: int
    address: str | None
    resume: bool = True
    compile: bool = False
    every: float = 60.0
    """Seconds between checkpoints."""
    tensorboard: bool = False
    graphs: bool = False

    def plan(self, folder: Path) -> Plan:
        """The same for the laboratory. What would be forgotten on the way is refused."""
        from racecar.lab.running import runner
        from racecar.lab.running.engines.base import Plan
        from racecar.lab.running.work import Maker
        from racecar.lab.training import distributed

        _check_device(self.device, self.engine)
        maker = Maker(command(), self.engine, runner.commit())
        how = (self.compile, self.every, self.resume, self.workers, self.address, self.tensorboard, self.graphs)
        plan = Plan(folder, maker, self.device, *how)
        try:
            runner.check(plan, self.engine)
        except ValueError:
            if not speaks():
                raise typer.Exit(2) from None
            raise
        if distributed.launched():  # the processes share every training
            return replace(plan, device=distributed.start(self.device), workers=1)
        return plan


def speaks() -> bool:
    """Whether this process is the one, of those that torchrun started, that speaks for all."""
    return os.environ.get("RANK", "0") == "0"


def do(jobs: Sequence[Job], folder: Path, how: How, quiet: bool = False) -> None:
    """Do the jobs, and say what came of them."""
    from racecar.lab.running import runner
    from racecar.lab.running.results import Store
    from racecar.lab.training import distributed

    again = command() if how.resume else f"{command()} --resume"
    interrupts.advice = f"what was finished is in {folder}; to go on: {again}"
    plan, store = how.plan(folder), Store(folder)
    for job in jobs:
        if job.unfinished(store):
            if speaks():
                store.check()
            job.experiment.data(job.config, job.seed, job.folder)  # where they are missing, that is said once
            break
    there = sum(len(job.stages) - len(job.unfinished(store)) for job in jobs)
    if there and distributed.first():
        print(f"{there} of {sum(len(job.stages) for job in jobs)} stages are there already", file=sys.stderr)
    if distributed.first() and (begun := [] if how.resume else runner.begun(jobs, plan, how.engine)):
        which = f"{begun[0]}" + (f" and {len(begun) - 1} more" if begun[1:] else "")
        note(f"begun before, and started anew for want of --resume: {which}")
    failures = runner.run(jobs, plan, how.engine)
    if distributed.first():
        if not quiet:
            if jobs and jobs[0].purpose:
                print(f"a {jobs[0].purpose} run: no evidence, and nothing of it is judged")
            print(summary(jobs, store))
            print(f"results: {folder}   page: {shlex.join(['racecar', 'report', str(folder)])}")
        for failure in failures:
            print(f"racecar: {failure.job} failed: {failure.message}", file=sys.stderr)
    distributed.stop()
    if failures:
        raise ValueError(f"{len(failures)} of {len(jobs)} jobs failed; what was finished is in {folder}")


def _check_device(device: str, engine: str) -> None:
    import torch

    try:
        torch.device(device)
    except RuntimeError:
        raise ValueError(f"--device {device!r} is none: use cpu, cuda, cuda:1, …") from None
    if device.startswith("cuda") and engine != "ray" and not torch.cuda.is_available():  # a cluster may have some
        raise ValueError("--device cuda: this torch sees no CUDA device; use --device cpu")

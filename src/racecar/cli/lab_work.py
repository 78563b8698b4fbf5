"""Do jobs as the options say, and say what came of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from racecar import interrupts
from racecar.cli.console import command

if TYPE_CHECKING:
    from racecar.lab.engines.base import Plan
    from racecar.lab.jobs import Job
    from racecar.lab.results import Store


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
        from racecar.lab import distributed, runner
        from racecar.lab.engines.base import Plan
        from racecar.lab.work import Maker

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
    from racecar.lab import distributed, runner
    from racecar.lab.results import Store

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
    failures = runner.run(jobs, plan, how.engine)
    if distributed.first():
        if not quiet:
            if jobs and jobs[0].purpose:
                print(f"a {jobs[0].purpose} run: no evidence, and nothing of it is judged")
            print(summary(jobs, store))
            print(f"results: {folder}   page: racecar report {folder}")
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


def summary(jobs: Sequence[Job], store: Store) -> str:
    """Mean ± sd of every metric over the seeds, the coefficient as pages print it; or what an experiment of many
    settings says of itself."""
    from statistics import mean, stdev

    from racecar.lab.config import changed
    from racecar.lab.restate import times
    from racecar.table import table

    found, _ = store.read()  # what cannot be read is the failure of its job
    if jobs and jobs[0].experiment.tells:
        notes, _ = jobs[0].experiment.told([one for run in found if (one := run.made_for(jobs[0].purpose))])
        return "\n".join(notes)
    known = {run.id: run for run in found}
    groups: dict[tuple[str, ...], list[Any]] = {}
    metrics: dict[str, None] = {}
    for job in jobs:
        for stage in job.stages:
            if (run := known.get(job.ids[stage.name])) is not None:
                setting = ", ".join(f"{key}={value}" for key, value in changed(job.base).items())
                factor = times(job.experiment, job.config, job.variant)
                strength = "" if job.coefficient is None else f"{factor * job.coefficient:g}"
                groups.setdefault((setting, stage.name, job.variant, strength), []).append(run)
                metrics.update(dict.fromkeys(run.metrics))
    rows = []
    for (setting, stage_name, which, strength), runs in groups.items():
        cells = []
        for metric in metrics:
            values = [run.metrics[metric] for run in runs if run.finished and metric in run.metrics]
            spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.3f}{spread}" if values else "-")
        counts = {"diverged": sum(not run.finished for run in runs), "dead": sum(run.dead for run in runs)}
        lost = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        rows.append([setting, stage_name, which, strength, f"{len(runs)}" + (f" ({lost})" if lost else ""), *cells])
    return table(["settings", "stage", "variant", "coefficient", "runs", *metrics], rows)

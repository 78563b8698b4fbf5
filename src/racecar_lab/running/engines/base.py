"""The interface of the engines: options of a run, function for progress, and failures; and one job, done in this
process."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from racecar.support.full import is_full
from racecar.support.interrupts import heard
from racecar.support.processes import is_rank_zero
from racecar_lab.running.job import Job
from racecar_lab.running.record_writer import Maker
from racecar_lab.running.results import Store
from racecar_lab.running.work import do
from racecar_lab.training.spec import TrainingOptions

Progress = Callable[[str, str, int, int, str], None]
"""Function by which an engine reports progress: (job, stage, steps done, steps in all, message) → None. Steps done are
−1 for a finished stage, and −2 to remove the progress bar."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(TrainingOptions):
    """Options of a run: of each training, and of all jobs together."""

    folder: Path
    """Folder of the results store."""
    maker: Maker
    """The command and environment of the run, which are written into every record."""
    workers: int = 0
    """Number of processes; 0: as many as fit."""
    address: str | None = None
    """Address of a Ray cluster; None: Ray is started on this machine."""
    tensorboard: bool = False


SMALLER = (
    "try --workers 1, a smaller batch (--set batch=N), a slice of the reverse pass (--set fraction=0.125), or with "
    "--engine vmap fewer seeds at once"
)
"""Advice in the error message when memory is full."""


@dataclass(frozen=True)
class Failure:
    """A job that raised an error; the other jobs continue."""

    job: str
    message: str
    """The error in one line."""
    details: str
    """The traceback of the error."""


def failure(job: str, error: BaseException) -> Failure:
    """The failure of a job, from the error; to be called where the error is caught. After Ctrl-C it raises
    KeyboardInterrupt instead."""
    if heard():  # interrupted code may have raised another error
        raise KeyboardInterrupt from error
    if is_full(error):
        message = f"out of memory{f' in stage {error}' if isinstance(error, FullStage) else ''}: {SMALLER}"
    else:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
    return Failure(job, message, "".join(traceback.format_exception(error)))


class FullStage(MemoryError):
    """The error that memory is full in a stage; its argument is the name of the stage."""


def do_job(job: Job, options: RunOptions, progress: Progress) -> None:
    """Do all unfinished stages of a job, in this process."""
    store = Store(options.folder)
    for stage in job.unfinished(store):
        writer = _writer(options, job, stage.name)

        def report(done: int, total: int, note: str, name: str = stage.name) -> None:
            progress(job.label, name, done, total, note)

        try:
            do(replace_stages(job, stage.name), store, replace(options, report=report, scalars=writer), options.maker)
        except Exception as error:
            if is_full(error):
                raise FullStage(stage.name) from error
            raise
        finally:
            if writer is not None:
                writer.close()
        progress(job.label, stage.name, -1, -1, "")


def replace_stages(job: Job, name: str) -> Job:
    """The job with only one of its stages."""
    return replace(job, stages=tuple(stage for stage in job.stages if stage.name == name))


def _writer(options: RunOptions, job: Job, stage: str) -> Any:
    """A TensorBoard writer for a stage; None if it is not asked for."""
    if not options.tensorboard or not is_rank_zero():
        return None
    from racecar.support.extras import need

    need("tensorboard", "lab")
    from torch.utils.tensorboard import SummaryWriter

    name = f"{job.label} {stage}".replace(" ", "-")
    return SummaryWriter(str(options.folder / "tensorboard" / f"{name}-{job.ids[stage][:6]}"))

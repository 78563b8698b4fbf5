"""What every engine is given, and what it gives back."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from racecar.support.full import is_full
from racecar.support.interrupts import heard
from racecar.support.processes import is_rank_zero
from racecar_lab.running.jobs import Job
from racecar_lab.running.results import Store
from racecar_lab.running.work import Maker, do
from racecar_lab.training.spec import TrainingOptions

Progress = Callable[[str, str, int, int, str], None]
"""(job, stage, steps done, steps in all, what to show) → None. −1 steps done: finished; −2: shown no longer."""


@dataclass(frozen=True, kw_only=True)
class RunOptions(TrainingOptions):
    """How jobs are run: each of their trainings, and all of them together."""

    folder: Path
    """Of the results store."""
    maker: Maker
    workers: int = 0
    """Processes at once; 0: as many as fit."""
    address: str | None = None
    """Of a Ray cluster."""
    tensorboard: bool = False


SMALLER = (
    "try --workers 1, a smaller batch (--set batch=N), a slice of the reverse pass (--set fraction=0.125), or with "
    "--engine vmap fewer seeds at once"
)
"""What to try where memory was full."""


@dataclass(frozen=True)
class Failure:
    """A job that raised; everything else goes on."""

    job: str
    message: str
    """One line."""
    details: str
    """The traceback."""


def failure(job: str, error: BaseException) -> Failure:
    """To be called where the error was caught."""
    if heard():  # what was interrupted may have called it something else
        raise KeyboardInterrupt from error
    if is_full(error):
        message = f"out of memory{f' in stage {error}' if isinstance(error, FullStage) else ''}: {SMALLER}"
    else:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
    return Failure(job, message, "".join(traceback.format_exception(error)))


class FullStage(MemoryError):
    """Memory was full in a stage, the one that it is called with."""


def do_job(job: Job, options: RunOptions, progress: Progress) -> None:
    """All unfinished stages of a job, in this process."""
    store = Store(options.folder)
    for stage in job.unfinished(store):
        writer = _writer(options, job, stage.name)

        def report(done: int, total: int, note: str, name: str = stage.name) -> None:
            progress(job.label, name, done, total, note)

        one = replace_stages(job, stage.name)
        try:
            do(one, store, replace(options, report=report, scalars=writer), options.maker)
        except Exception as error:
            if is_full(error):
                raise FullStage(stage.name) from error
            raise
        finally:
            if writer is not None:
                writer.close()
        progress(job.label, stage.name, -1, -1, "")


def replace_stages(job: Job, name: str) -> Job:
    """The job with one of its stages only."""
    return replace(job, stages=tuple(stage for stage in job.stages if stage.name == name))


def _writer(options: RunOptions, job: Job, stage: str) -> Any:
    if not options.tensorboard or not is_rank_zero():
        return None
    from racecar.support.extras import need

    need("tensorboard", "lab")
    from torch.utils.tensorboard import SummaryWriter

    name = f"{job.label} {stage}".replace(" ", "-")
    return SummaryWriter(str(options.folder / "tensorboard" / f"{name}-{job.ids[stage][:6]}"))

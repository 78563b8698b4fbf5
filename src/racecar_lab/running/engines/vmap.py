"""The engine "vmap": all seeds and λs of a variant are trained as one batched net, by ``torch.func.vmap``."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from racecar.support.files import remove
from racecar.support.full import is_full
from racecar_lab.running.engines.base import Failure, FullStage, Progress, RunOptions, failure
from racecar_lab.running.engines.batching import checkpoint_of, data_key, groups_of, pretraining_key, refuse
from racecar_lab.running.engines.here import size
from racecar_lab.running.engines.pool import share_out
from racecar_lab.running.job import Job
from racecar_lab.running.record_writer import RecordWriter
from racecar_lab.running.results import Store
from racecar_lab.running.starting import begin, training
from racecar_lab.running.work import as_trained, finish, parent_diverged
from racecar_lab.stage import Measured, Stage, Trained
from racecar_lab.task import Task
from racecar_lab.training.checkpoint import drop_damaged, reading
from racecar_lab.training.curves import Diverged
from racecar_lab.training.spec import Training
from racecar_lab.training.steps.vmapped import Vmapped
from racecar_lab.training.train import StageOutcome, Trainer


def run(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Do all jobs, those of one variant and configuration together; several workers do whole groups, largest first."""
    store = Store(options.folder)
    groups = [group for group in groups_of(jobs) if any(job.unfinished(store) for job in group)]
    if min(options.workers, len(groups)) <= 1:
        return [failed for group in groups for failed in _attempt(group, options, progress)]
    groups.sort(key=lambda group: len(group) * size(group[0]), reverse=True)
    workers = min(options.workers, len(groups))
    return share_out(groups, _attempt, _label, workers, options, progress)


def _label(jobs: Sequence[Job]) -> str:
    return f"{jobs[0].experiment.name} {jobs[0].variant}, {len(jobs)} nets"


def _attempt(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Train the jobs of a group as one batched net. Returns the failures."""
    group = _Group(jobs, options, progress)
    try:
        group.do()
    except Exception as error:
        return [failure(_label(jobs), error), *group.failed.values()]
    return list(group.failed.values())


class _Group:
    """Jobs that are trained as one batched net, stage by stage."""

    def __init__(self, jobs: Sequence[Job], options: RunOptions, progress: Progress) -> None:
        self.jobs, self.options, self.progress = jobs, options, progress
        self.store = Store(options.folder)
        self.writer = RecordWriter(self.store, options.maker, options.device)
        self.failed: dict[Job, Failure] = {}
        self._data: dict[tuple[int, Any], Mapping[str, Task]] = {}

    def do(self) -> None:
        """Train all stages; a job that fails in one skips the next ones. A batched net with a checkpoint comes first,
        with all of its nets, although some may be in the store already: so it continues bit for bit."""
        refuse(self.jobs[0], self.options.device)
        for stage in self.jobs[0].stages:
            checkpoint = checkpoint_of(self.jobs, stage, self.store)
            if not self.options.resume:
                remove(checkpoint)
                for job in self.jobs:
                    self.store.forget(job.ids[stage.name])
            drop_damaged(checkpoint, *(file for job in self.jobs for file in self.store.begun(job.ids[stage.name])))
            if checkpoint.exists():
                with reading(checkpoint) as state:
                    ids = set(state["ids"])
                self._do_stage([job for job in self.jobs if job.ids[stage.name] in ids], stage, checkpoint)
            unfinished = [job for job in self.jobs if not self.store.has(job.ids[stage.name])]
            self._do_stage([job for job in unfinished if job not in self.failed], stage, checkpoint)

    def _do_stage(self, jobs: Sequence[Job], stage: Stage, checkpoint: Path) -> None:
        """Train a stage of some jobs, if there are any; if memory is full, the error names the stage."""
        try:
            self._stage(jobs, stage, checkpoint)
        except Exception as error:
            if is_full(error):
                raise FullStage(stage.name) from error
            raise

    def _stage(self, jobs: Sequence[Job], stage: Stage, checkpoint: Path) -> None:
        """Train a stage of some jobs as one batched net, measure each net and write its record."""
        began = time.perf_counter()
        trainings = self._trainings(jobs, stage, fresh=not checkpoint.exists())
        if not trainings:
            return
        members = list(trainings)
        label = f"{members[0].experiment.name} {members[0].variant} × {len(members)}"

        def report(done: int, total: int, note: str) -> None:
            self.progress(label, stage.name, done, total, note)

        options = replace(self.options, report=report)
        nets = Vmapped(list(trainings.values()), options)
        outcomes = Trainer(nets).run(checkpoint)

        def trained(i: int) -> Trained:
            job, model, history = members[i], nets.model_of(i), outcomes[i].history
            tasks = self._tasks(job)
            return as_trained(
                job, stage, model, history, task=nets.batches.tasks[i], tasks=tasks, device=options.device
            )

        missing = [i for i, job in enumerate(members) if not self.store.has(job.ids[stage.name])]
        alive = [i for i in missing if not outcomes[i].note]
        together = _measure_together([members[i] for i in alive], map(trained, alive))
        measured = dict(zip(alive, together, strict=False))
        share = (time.perf_counter() - began) / len(members)
        for i in missing:
            self._finish(members[i], stage, partial(trained, i), outcomes[i], share, measured.get(i))
        self.progress(label, stage.name, -2, -2, "")
        if not any(job in self.failed for job in members):  # else the trained nets are kept for the next run
            remove(checkpoint)

    def _tasks(self, job: Job) -> Mapping[str, Task]:
        """The tasks of a job by name, loaded once for all jobs that share them."""
        key = data_key(job)
        if key not in self._data:
            self._data[key] = job.experiment.data(job.config, job.seed, job.folder)
        return self._data[key]

    def _trainings(self, jobs: Sequence[Job], stage: Stage, fresh: bool) -> dict[Job, Training]:
        """The training of each job that can begin the stage. A job whose earlier stage diverged is recorded as
        diverged; the error of any other is kept in ``failed``.

        Args:
            fresh: False if a checkpoint has the weights, so that no pretraining is needed.
        """
        trainings: dict[Job, Training] = {}
        pretrained: dict[str, nn.Module] = {}
        for job in jobs:
            try:
                if note := parent_diverged(job, stage, self.store):
                    raise Diverged(note)
                task = job.task(self._tasks(job), stage)
                initial_model = partial(begin, job, stage, task, self.store, fresh=fresh)
                if job.experiment.variant(job.variant).kind == "pretrain":
                    key = pretraining_key(job)
                    pretrained[key] = pretrained.get(key) or initial_model(self.options.device)
                    model = copy.deepcopy(pretrained[key])
                else:
                    model = initial_model("cpu")  # all are moved to the device at once
                trainings[job] = training(job, stage, task, model)
            except FloatingPointError as error:
                self.writer.diverged(job, stage, str(error))
            except Exception as error:
                self.failed[job] = failure(job.label, error)
        return trainings

    def _finish(
        self,
        job: Job,
        stage: Stage,
        trained: Callable[[], Trained],
        outcome: StageOutcome,
        share: float,
        measured: Measured | None,
    ) -> None:
        """Write the record of one net.

        Args:
            share: seconds of the stage that count for this net.
            measured: its measurements, if they are made already.
        """
        try:
            if outcome.note:
                self.writer.diverged(job, stage, outcome.note)
            else:
                began = time.perf_counter() - share
                finish(job, trained(), outcome, self.writer, began=began, measured=measured)
        except Exception as error:
            self.failed[job] = failure(job.label, error)
        self.progress(job.label, stage.name, -1, -1, "")


def _measure_together(jobs: Sequence[Job], trained: Iterable[Trained]) -> list[Measured]:
    """Measurements of the nets of some jobs, if the experiment can measure them together. Empty if it cannot, or if
    that fails: each net is then measured by itself, and the failure is that of one job."""
    each = zip((job.config for job in jobs), trained, strict=True)
    try:
        return list(jobs[0].experiment.measure_all(each) or ()) if jobs else []
    except Exception as error:
        warnings.warn(f"{_label(jobs)} are measured one by one: together it failed, {error!r}", stacklevel=2)
        return []

"""The work of a job: train its stages one after the other, measure each, and write its record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from racecar.support.processes import is_rank_zero
from racecar_lab.measures.dead import dead_layers, is_dead
from racecar_lab.running.job import Job
from racecar_lab.running.record_writer import Maker, RecordWriter
from racecar_lab.running.results import Store
from racecar_lab.running.run import DEAD
from racecar_lab.running.starting import begin, training
from racecar_lab.stage import Measured, Stage, Trained
from racecar_lab.task import Task
from racecar_lab.training import distributed
from racecar_lab.training.checkpoint import drop_damaged
from racecar_lab.training.curves import Diverged, short
from racecar_lab.training.single import Single
from racecar_lab.training.spec import TrainingOptions
from racecar_lab.training.train import StageOutcome, Trainer


def do(job: Job, store: Store, options: TrainingOptions, maker: Maker) -> None:
    """Train those stages of a job that are not in the store yet. A stage that diverges is recorded as diverged, and so
    are those that start from it."""
    unfinished, writer = job.unfinished(store), RecordWriter(store, maker, options.device)
    if not unfinished:
        return
    tasks = job.experiment.data(job.config, job.seed, job.folder)
    for stage in unfinished:
        _do(job, stage, tasks, writer, options)


def _do(job: Job, stage: Stage, tasks: Mapping[str, Task], writer: RecordWriter, options: TrainingOptions) -> None:
    """Train a stage, measure it and write its record. When this returns, the device holds nothing of it."""
    began = time.perf_counter()
    try:
        if note := parent_diverged(job, stage, writer.store):
            raise Diverged(note)
        nets, outcome = _train(job, stage, job.task(tasks, stage), writer.store, options)
        if outcome.note:
            raise Diverged(outcome.note)
        trained = as_trained(
            job, stage, nets.model, outcome.history, task=nets.batches.tasks[0], tasks=tasks, device=options.device
        )
        write = partial(finish, job, trained, outcome, writer, began=began)
    except FloatingPointError as error:
        write = partial(writer.diverged, job, stage, str(error))
    distributed.once(write, options.device)


def _train(job: Job, stage: Stage, task: Task, store: Store, options: TrainingOptions) -> tuple[Single, StageOutcome]:
    """Train a stage, from its checkpoint if there is one and the options allow it."""
    id = job.ids[stage.name]
    checkpoint = store.checkpoint(id)
    if not options.resume and is_rank_zero():
        store.forget(id)
    elif is_rank_zero():
        drop_damaged(*store.begun(id))
    distributed.wait()
    model = begin(job, stage, task, store, options.device, fresh=not checkpoint.exists())
    nets = Single(training(job, stage, task, model), options)
    (outcome,) = Trainer(nets).run(checkpoint)
    return nets, outcome


def parent_diverged(job: Job, stage: Stage, store: Store) -> str:
    """The note of a stage that cannot start, because the stage that it starts from diverged; empty if it can."""
    parent = job.parent(stage)
    if parent is not None and not store.get(parent).finished:
        return f"stage {stage.after}, which it starts from, diverged"
    return ""


def as_trained(
    job: Job,
    stage: Stage,
    model: nn.Module,
    history: Mapping[str, Tensor],
    *,
    task: Task,
    tasks: Mapping[str, Task],
    device: str,
) -> Trained:
    """The trained model as ``Experiment.measure`` gets it.

    Args:
        history: snapshots taken during training.
        task: the task of the stage, on the device.
        tasks: all tasks of the experiment, as its ``data`` returned them.
    """
    return Trained(
        stage,
        model.eval(),
        task,
        seed=job.seed,
        variant=job.variant,
        device=torch.device(device),
        folder=job.folder,
        history=history,
        tasks=tasks,
    )


def finish(
    job: Job,
    trained: Trained,
    outcome: StageOutcome,
    writer: RecordWriter,
    *,
    began: float,
    measured: Measured | None = None,
) -> None:
    """Measure a trained model and write its record.

    Args:
        began: ``time.perf_counter()`` at the start of the stage.
        measured: the measurements, if they are made already.
    """
    measured = measured or job.experiment.measure(job.config, trained)
    cost = {
        "wall_s": short(time.perf_counter() - began),
        "step_s": short(outcome.step_s),
        "steps": outcome.steps,
        "peak_memory": outcome.peak_memory,
    }
    note, dead = "", None
    if check := job.experiment.collapse_check(job.config, trained):
        note = DEAD if is_dead(*check) else ""
        dead = dead_layers(check.model, check.inputs) if trained.stage.regularised else None
    writer.finished(
        job,
        trained.stage,
        measured,
        cost=cost,
        curves=outcome.curves,
        model=trained.model,
        note=note,
        dead=dead,
    )

"""The engine "vmap": all seeds and λs of a variant are trained as one batched net, by ``torch.func.vmap``."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from torch import nn

from racecar.support.files import remove
from racecar.support.full import is_full
from racecar_lab.running.engines.base import Failure, FullStage, Progress, RunOptions, failure
from racecar_lab.running.engines.here import size
from racecar_lab.running.engines.pool import share_out
from racecar_lab.running.job import Job
from racecar_lab.running.record_writer import RecordWriter
from racecar_lab.running.results import Store, identity
from racecar_lab.running.starting import begin, pretraining_lr, training
from racecar_lab.running.work import as_trained, finish, parent_diverged
from racecar_lab.stage import Measured, Stage, Trained
from racecar_lab.task import Task
from racecar_lab.training.checkpoint import drop_damaged, reading
from racecar_lab.training.curves import Diverged
from racecar_lab.training.spec import Training
from racecar_lab.training.steps.vmapped import Vmapped
from racecar_lab.training.train import Trainer
from racecar_lab.training.variants import variant

AT_ONCE = 256
"""Maximal number of nets in one batched net."""


def run(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Do all jobs, those of one variant and configuration together; several workers do whole groups, largest first."""
    store = Store(options.folder)
    parts = [part for part in _parts(jobs) if any(job.unfinished(store) for job in part)]
    if min(options.workers, len(parts)) <= 1:
        return [failed for part in parts for failed in _attempt(part, options, progress)]
    parts.sort(key=lambda part: len(part) * size(part[0]), reverse=True)
    return share_out(parts, _attempt, _label, min(options.workers, len(parts)), options, progress)


def _parts(jobs: Sequence[Job]) -> list[list[Job]]:
    """Groups of jobs that can be trained as one batched net."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        clusters = job.experiment.clusters
        may_differ = {*job.config.stackable, clusters and clusters.field}
        shared = {name: value for name, value in job.config.to_dict().items() if name not in may_differ}
        key = identity({"experiment": job.experiment.name, "variant": job.variant, "config": shared})
        groups.setdefault(key, []).append(job)
    for group in groups.values():
        group.sort(key=_optimiser_key)
    return [group[i : i + AT_ONCE] for group in groups.values() for i in range(0, len(group), AT_ONCE)]


def _optimiser_key(job: Job) -> tuple[float, ...]:
    """Settings of the optimiser; jobs that share them share an optimiser."""
    decay = job.weight if variant(job.variant).kind == "decay" else None
    return job.config.lr, job.config.weight_decay, decay or 0.0


def _pretraining_key(job: Job) -> str:
    """Settings of the pretraining; jobs that share them share a pretraining, whatever their learning rates."""
    shared = {name: value for name, value in job.config.to_dict().items() if name not in ("lr", "weight_decay")}
    shared["pretrain_lr"] = pretraining_lr(job.config)
    return identity({"seed": job.seed, "epochs": job.weight, "config": shared})


def _data_key(job: Job) -> tuple[int, Any]:
    """The seed, and the fold if there are folds; jobs of a group that share them share their data."""
    clusters = job.experiment.clusters
    return job.seed, clusters and clusters.of(job.config)


def _checkpoint(jobs: Sequence[Job], stage: Stage, store: Store) -> Path:
    return store.checkpoint(f"vmap-{identity({'ids': [job.ids[stage.name] for job in jobs]})}")


def checkpoints(jobs: Sequence[Job], store: Store) -> list[Path]:
    """Paths of the checkpoints of these jobs' batched nets; files exist for those begun and not finished."""
    return [_checkpoint(part, stage, store) for part in _parts(jobs) for stage in part[0].stages]


def _label(jobs: Sequence[Job]) -> str:
    return f"{jobs[0].experiment.name} {jobs[0].variant}, {len(jobs)} nets"


def _attempt(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Do the jobs of a group. Returns the failures."""
    failed: dict[Job, Failure] = {}
    try:
        _do(jobs, options, progress, failed)
    except Exception as error:
        return [failure(_label(jobs), error), *failed.values()]
    return list(failed.values())


def _check(job: Job, device: str) -> None:
    """Refuse a job that torch cannot batch."""
    config, network = job.config, job.experiment.networks(job.config, job.stages[0], None)
    turns = [turn.network for stage in job.stages for turn in job.experiment.recipe(config, stage).turns]
    drops = (isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in network.modules())
    norms = (isinstance(m, nn.modules.batchnorm._BatchNorm) and m.momentum is None for m in network.modules())
    kinds = nn.LSTM if device == "cpu" else nn.RNNBase  # these run as one fused kernel, which vmap cannot batch
    fused = sorted({type(module).__name__ for module in network.modules() if isinstance(module, kinds)})
    refused = {
        f"{', '.join(fused)} on {device}, which torch cannot batch": bool(fused),
        "dropout": variant(job.variant).kind == "dropout" or any(drops),
        "batch norm without momentum": any(norms),
        f"precision={config.precision}": config.precision != "float32",
        "ema": bool(config.ema),
        f"networks that take turns ({', '.join(dict.fromkeys(turns))})": len(turns) > 1 or any(turns),
    }
    for feature, refuse in refused.items():
        if refuse:
            raise ValueError(f"the vmap engine does not do {feature}: use --engine here")


def _do(jobs: Sequence[Job], options: RunOptions, progress: Progress, failed: dict[Job, Failure]) -> None:
    """Do a group stage by stage; a job that fails in a stage skips the next ones. A batched net with a checkpoint comes
    first, with all of its nets, although some may be in the store already: so it continues bit for bit."""
    store, jobs_by_data = Store(options.folder), {_data_key(job): job for job in jobs}
    _check(jobs[0], options.device)

    @cache
    def load(key: tuple[int, Any]) -> Mapping[str, Task]:
        job = jobs_by_data[key]
        return job.experiment.data(job.config, job.seed, job.folder)

    def data(job: Job) -> Mapping[str, Task]:
        return load(_data_key(job))

    for stage in jobs[0].stages:
        path = _checkpoint(jobs, stage, store)
        if not options.resume:
            remove(path)
            for job in jobs:
                store.forget(job.ids[stage.name])
        drop_damaged(path, *(file for job in jobs for file in store.begun(job.ids[stage.name])))
        if path.exists():
            with reading(path) as state:
                ids = set(state["ids"])
            begun = [job for job in jobs if job.ids[stage.name] in ids]
            _do_stage(begun, stage, path, data, options, progress, failed)
        remaining = [job for job in jobs if job not in failed and not store.has(job.ids[stage.name])]
        _do_stage(remaining, stage, path, data, options, progress, failed)


def _do_stage(jobs: Sequence[Job], stage: Stage, *args: Any) -> None:
    """Do a stage of some jobs; if memory is full, the error names the stage."""
    try:
        _stage(jobs, stage, *args)
    except Exception as error:
        if is_full(error):
            raise FullStage(stage.name) from error
        raise


def _stage(
    jobs: Sequence[Job],
    stage: Stage,
    path: Path,
    data: Callable[[Job], Mapping[str, Task]],
    options: RunOptions,
    progress: Progress,
    failed: dict[Job, Failure],
) -> None:
    """Train a stage of some jobs as one batched net, measure each net and write its record.

    Args:
        path: of the checkpoint.
        data: from a job to its tasks by name.
        failed: failures of jobs are added here.
    """
    began, store = time.perf_counter(), Store(options.folder)
    writer = RecordWriter(store, options.maker, options.device)
    members: list[tuple[Job, Training]] = []
    pretrained: dict[str, nn.Module] = {}
    for job in jobs:
        try:
            if note := parent_diverged(job, stage, store):
                raise Diverged(note)
            task = job.task(data(job), stage)
            initial_model = partial(begin, job, stage, task, store, fresh=not path.exists())
            if variant(job.variant).kind == "pretrain":
                key = _pretraining_key(job)
                pretrained[key] = pretrained.get(key) or initial_model(options.device)
                model = copy.deepcopy(pretrained[key])
            else:
                model = initial_model("cpu")  # all are moved to the device at once
            members.append((job, training(job, stage, task, model)))
        except FloatingPointError as error:
            writer.diverged(job, stage, str(error))
        except Exception as error:
            failed[job] = failure(job.label, error)
    if not members:
        return
    label = f"{members[0][0].experiment.name} {members[0][0].variant} × {len(members)}"

    def report(done: int, total: int, note: str) -> None:
        progress(label, stage.name, done, total, note)

    options = replace(options, report=report)
    nets = Vmapped([training for _, training in members], options)
    outcomes = Trainer(nets, options).run(path)

    def trained(i: int) -> Trained:
        job, _ = members[i]
        model, tasks = nets.model_of(i), data(job)
        history = outcomes[i].history
        return as_trained(job, stage, model, history, task=nets.tasks[i], tasks=tasks, device=options.device)

    unmeasured = [
        i for i, (job, _) in enumerate(members) if not outcomes[i].note and not store.has(job.ids[stage.name])
    ]
    together = _measure_together([members[i][0] for i in unmeasured], map(trained, unmeasured))
    measured = dict(zip(unmeasured, together, strict=False))
    wall = (time.perf_counter() - began) / len(members)
    for i, ((job, _), outcome) in enumerate(zip(members, outcomes, strict=True)):
        if store.has(job.ids[stage.name]):
            continue
        try:
            if outcome.note:
                writer.diverged(job, stage, outcome.note)
            else:
                own_began = time.perf_counter() - wall
                finish(job, trained(i), outcome, writer, began=own_began, measured=measured.get(i))
        except Exception as error:
            failed[job] = failure(job.label, error)
        progress(job.label, stage.name, -1, -1, "")
    progress(label, stage.name, -2, -2, "")
    if not any(job in failed for job, _ in members):  # else the trained nets are kept for the next run
        remove(path)


def _measure_together(jobs: Sequence[Job], trained: Iterable[Trained]) -> list[Measured]:
    """Measurements of nets that the experiment measures together. Empty if it does not, or if that fails: each net is
    then measured by itself, and the failure is that of one job."""
    each = zip((job.config for job in jobs), trained, strict=True)
    try:
        return list(jobs[0].experiment.measure_all(each) or ()) if jobs else []
    except Exception as error:
        warnings.warn(f"{_label(jobs)} are measured one by one: together it failed, {error!r}", stacklevel=2)
        return []

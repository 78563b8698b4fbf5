"""Many small nets at once: all seeds and coefficients of a variant as one batched net, through torch.func."""

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
from racecar_lab.experiment import Measured, Stage, Task, Trained
from racecar_lab.running.engines.base import Failure, FullStage, Progress, RunOptions, failure
from racecar_lab.running.engines.here import size
from racecar_lab.running.engines.pool import share_out
from racecar_lab.running.jobs import Job
from racecar_lab.running.results import Store, identity
from racecar_lab.running.work import as_trained, begin, finish, lost, pretraining_lr, training, write
from racecar_lab.training.checkpoint import drop_damaged, reading
from racecar_lab.training.curves import Diverged
from racecar_lab.training.spec import Training
from racecar_lab.training.steps.vmapped import Vmapped
from racecar_lab.training.train import Trainer
from racecar_lab.training.variants import variant

AT_ONCE = 256
"""Nets in one batch."""


def run(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Do all jobs, those of one variant and configuration together; several workers do whole groups, largest first."""
    store = Store(options.folder)
    parts = [part for part in _parts(jobs) if any(job.unfinished(store) for job in part)]
    if min(options.workers, len(parts)) <= 1:
        return [failed for part in parts for failed in _attempt(part, options, progress)]
    parts.sort(key=lambda part: len(part) * size(part[0]), reverse=True)
    return share_out(parts, _attempt, _label, min(options.workers, len(parts)), options, progress)


def _parts(jobs: Sequence[Job]) -> list[list[Job]]:
    """Groups of jobs that can be one batched net."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        clusters = job.experiment.clusters
        free = {"lr", "weight_decay", *job.experiment.stackable, clusters and clusters.field}  # may differ
        alike = {name: value for name, value in job.config.to_dict().items() if name not in free}
        key = identity({"experiment": job.experiment.name, "variant": job.variant, "config": alike})
        groups.setdefault(key, []).append(job)
    for group in groups.values():
        group.sort(key=_stepped)
    return [group[i : i + AT_ONCE] for group in groups.values() for i in range(0, len(group), AT_ONCE)]


def _stepped(job: Job) -> tuple[float, ...]:
    """Jobs that are alike in this have one optimiser."""
    own = job.coefficient if variant(job.variant).kind == "decay" else None
    return job.config.lr, job.config.weight_decay, own or 0.0


def _pretraining(job: Job) -> str:
    """The same for jobs whose nets are pretrained alike, so that one pretraining is enough for all learning rates."""
    alike = {name: value for name, value in job.config.to_dict().items() if name not in ("lr", "weight_decay")}
    alike["pretrain_lr"] = pretraining_lr(job.config)
    return identity({"seed": job.seed, "epochs": job.coefficient, "config": alike})


def _data(job: Job) -> tuple[int, Any]:
    """The same for jobs of one part that have the same data: the seed, and the fold where there are folds."""
    clusters = job.experiment.clusters
    return job.seed, clusters and clusters.of(job.config)


def _checkpoint(jobs: Sequence[Job], stage: Stage, store: Store) -> Path:
    return store.checkpoint(f"vmap-{identity({'ids': [job.ids[stage.name] for job in jobs]})}")


def checkpoints(jobs: Sequence[Job], store: Store) -> list[Path]:
    """Where the batches of these jobs keep their state, if they are begun and not finished."""
    return [_checkpoint(part, stage, store) for part in _parts(jobs) for stage in part[0].stages]


def _label(jobs: Sequence[Job]) -> str:
    return f"{jobs[0].experiment.name} {jobs[0].variant}, {len(jobs)} nets"


def _attempt(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    failed: dict[Job, Failure] = {}
    try:
        _do(jobs, options, progress, failed)
    except Exception as error:
        return [failure(_label(jobs), error), *failed.values()]
    return list(failed.values())


def _check(job: Job, device: str) -> None:
    config, network = job.config, job.experiment.networks(job.config, job.stages[0], None)
    turns = [turn.network for stage in job.stages for turn in job.experiment.recipe(config, stage).turns]
    drops = (isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in network.modules())
    norms = (isinstance(one, nn.modules.batchnorm._BatchNorm) and one.momentum is None for one in network.modules())
    kinds = nn.LSTM if device == "cpu" else nn.RNNBase  # torch.func does what others are made of, and no fused one
    fused = sorted({type(one).__name__ for one in network.modules() if isinstance(one, kinds)})
    refused = {
        f"{', '.join(fused)} on {device}, which torch cannot batch": bool(fused),
        "dropout": variant(job.variant).kind == "dropout" or any(drops),
        "batch norm without momentum": any(norms),
        f"precision={config.precision}": config.precision != "float32",
        "ema": bool(config.ema),
        f"networks that take turns ({', '.join(dict.fromkeys(turns))})": len(turns) > 1 or any(turns),
    }
    for what, refuse in refused.items():
        if refuse:
            raise ValueError(f"the vmap engine does not do {what}: use --engine here")


def _do(jobs: Sequence[Job], options: RunOptions, progress: Progress, failed: dict[Job, Failure]) -> None:
    """Stage by stage; a job that fails goes no further. First comes the batch that was begun, if there is one: all of
    it, although some of its nets may be in the store already, so that it goes on bit for bit."""
    store, known = Store(options.folder), {_data(job): job for job in jobs}
    _check(jobs[0], options.device)
    load = cache(lambda key: known[key].experiment.data(known[key].config, known[key].seed, known[key].folder))

    def data(job: Job) -> Mapping[str, Task]:
        return load(_data(job))

    for stage in jobs[0].stages:
        path = _checkpoint(jobs, stage, store)
        if not options.resume:
            remove(path)
            for job in jobs:
                store.forget(job.ids[stage.name])
        drop_damaged(path, *(one for job in jobs for one in store.begun(job.ids[stage.name])))
        if path.exists():
            with reading(path) as state:
                begun = set(state["ids"])
            _guarded(
                [job for job in jobs if job.ids[stage.name] in begun], stage, path, data, options, progress, failed
            )
        left = [job for job in jobs if job not in failed and not store.has(job.ids[stage.name])]
        _guarded(left, stage, path, data, options, progress, failed)


def _guarded(jobs: Sequence[Job], stage: Stage, *given: Any) -> None:
    try:
        _stage(jobs, stage, *given)
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
    began, store = time.perf_counter(), Store(options.folder)
    members: list[tuple[Job, Training]] = []
    pretrained: dict[str, nn.Module] = {}
    for job in jobs:
        try:
            if note := lost(job, stage, store):
                raise Diverged(note)
            task = job.task(data(job), stage)
            begun = partial(begin, job, stage, task, store, fresh=not path.exists())
            if variant(job.variant).kind == "pretrain":
                key = _pretraining(job)
                pretrained[key] = pretrained.get(key) or begun(options.device)
                model = copy.deepcopy(pretrained[key])
            else:
                model = begun("cpu")  # they are moved all at once
            members.append((job, training(job, stage, task, model)))
        except FloatingPointError as error:
            write(job, stage, store, options.maker, options.device, note=str(error))
        except Exception as error:
            failed[job] = failure(job.label, error)
    if not members:
        return
    label = f"{members[0][0].experiment.name} {members[0][0].variant} × {len(members)}"

    def report(done: int, total: int, note: str) -> None:
        progress(label, stage.name, done, total, note)

    options = replace(options, report=report)
    nets = Vmapped([one for _, one in members], options)
    outcomes = Trainer(nets, options).run(path)

    def trained(i: int) -> Trained:
        job, _ = members[i]
        what = job, stage, nets.tasks[i], nets.measured(i), outcomes[i]
        return as_trained(*what, options.device, data(job))

    left = [i for i, (job, _) in enumerate(members) if not outcomes[i].note and not store.has(job.ids[stage.name])]
    measured = dict(zip(left, _together([members[i][0] for i in left], map(trained, left)), strict=False))
    wall = (time.perf_counter() - began) / len(members)
    for i, ((job, _), outcome) in enumerate(zip(members, outcomes, strict=True)):
        if store.has(job.ids[stage.name]):
            continue
        try:
            if outcome.note:
                write(job, stage, store, options.maker, options.device, note=outcome.note)
            else:
                since = time.perf_counter() - wall
                what = job, trained(i), outcome, store, options.maker, options.device
                finish(*what, since, measured.get(i))
        except Exception as error:
            failed[job] = failure(job.label, error)
        progress(job.label, stage.name, -1, -1, "")
    progress(label, stage.name, -2, -2, "")
    if not any(job in failed for job, _ in members):  # else what is trained waits for the next run
        remove(path)


def _together(jobs: Sequence[Job], trained: Iterable[Trained]) -> list[Measured]:
    """What nets have that are measured together. Nothing where that fails: then each is measured by itself, so that it
    is known which one cannot be."""
    each = zip((job.config for job in jobs), trained, strict=True)
    try:
        return list(jobs[0].experiment.measure_all(each) or ()) if jobs else []
    except Exception as error:
        warnings.warn(f"{_label(jobs)} are measured one by one: together it failed, {error!r}", stacklevel=2)
        return []

"""Many small nets at once: all seeds and coefficients of a variant as one batched net, through torch.func."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import nn

from racecar.files import remove
from racecar.lab.checkpoint import reading
from racecar.lab.curves import Diverged
from racecar.lab.engines.base import Failure, Plan, Progress, failure
from racecar.lab.engines.batched import Batched
from racecar.lab.experiment import Stage, Task
from racecar.lab.jobs import Job
from racecar.lab.results import Store, identity
from racecar.lab.variants import Regularised, variant
from racecar.lab.work import decay, finish, lost, prepare, write

AT_ONCE = 256
"""Nets in one batch."""


def run(jobs: Sequence[Job], plan: Plan, progress: Progress) -> list[Failure]:
    """Do all jobs, those of one variant and configuration together."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        alike = {**job.config.to_dict(), "lr": 0}  # nets may differ in their step size
        key = identity({"experiment": job.experiment.name, "variant": job.variant, "config": alike})
        groups.setdefault(key, []).append(job)
    failures: list[Failure] = []
    for group in groups.values():
        group.sort(key=lambda job: (job.config.lr, decay(job, job.stages[0])))
        for start in range(0, len(group), AT_ONCE):
            part = group[start : start + AT_ONCE]
            failed: dict[Job, Failure] = {}
            try:
                _do(part, plan, progress, failed)
            except Exception as error:
                label = f"{part[0].experiment.name} {part[0].variant}, {len(part)} nets"
                failures.append(failure(label, error))
            failures += failed.values()
    return failures


def _check(job: Job) -> None:
    config, network = job.config, job.experiment.network(job.config)
    drops = (isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0 for module in network.modules())
    refused = {
        "dropout": variant(job.variant).kind == "dropout" or any(drops),
        "batch norm (or any buffers)": any(True for _ in network.buffers()),
        f"precision={config.precision}": config.precision != "float32",
        "ema": bool(config.ema),
    }
    for what, refuse in refused.items():
        if refuse:
            raise ValueError(f"the vmap engine does not do {what}: use --engine here")


def _do(jobs: Sequence[Job], plan: Plan, progress: Progress, failed: dict[Job, Failure]) -> None:
    """Stage by stage; a job that fails goes no further. First comes the batch that was begun, if there is one: all of
    it, although some of its nets may be in the store already, so that it goes on bit for bit."""
    store = Store(plan.folder)
    if not any(job.unfinished(store) for job in jobs):
        return
    _check(jobs[0])
    data = cache(lambda job: job.experiment.data(job.config, job.seed, job.folder))
    for stage in jobs[0].stages:
        path = store.checkpoint(f"vmap-{identity({'ids': [job.ids[stage.name] for job in jobs]})}")
        if not plan.resume:
            remove(path)
            for job in jobs:
                store.forget(job.ids[stage.name])
        if path.exists():
            with reading(path) as state:
                begun = set(state["ids"])
            _stage([job for job in jobs if job.ids[stage.name] in begun], stage, path, data, plan, progress, failed)
        left = [job for job in jobs if job not in failed and not store.has(job.ids[stage.name])]
        _stage(left, stage, path, data, plan, progress, failed)


def _stage(
    jobs: Sequence[Job],
    stage: Stage,
    path: Path,
    data: Callable[[Job], Mapping[str, Task]],
    plan: Plan,
    progress: Progress,
    failed: dict[Job, Failure],
) -> None:
    began, store = time.perf_counter(), Store(plan.folder)
    members: list[tuple[Job, Task]] = []
    modules: list[Regularised] = []
    for job in jobs:
        try:
            if note := lost(job, stage, store):
                raise Diverged(note)
            task = data(job)[stage.task]
            modules.append(prepare(job, stage, task, store, plan.device, fresh=not path.exists()))
            members.append((job, task))
        except FloatingPointError as error:
            write(job, stage, store, plan.maker, plan.device, note=str(error))
        except Exception as error:
            failed[job] = failure(job.label, error)
    if not members:
        return
    batch = Batched(members, modules, stage, torch.device(plan.device))
    label = f"{members[0][0].experiment.name} {members[0][0].variant} × {len(members)}"
    batch.run(path, plan.interval, lambda done, total, note: progress(label, stage.name, done, total, note))
    wall = (time.perf_counter() - began) / len(members)
    for i, (job, task) in enumerate(members):
        if store.has(job.ids[stage.name]):
            continue
        try:
            if bool(batch.finite[i]):
                model, outcome, since = batch.unstack(i), batch.outcome(i), time.perf_counter() - wall
                finish(job, stage, task.to(plan.device), model, outcome, store, plan.maker, plan.device, since)
            else:
                write(job, stage, store, plan.maker, plan.device, note="the loss was not finite any more")
        except Exception as error:
            failed[job] = failure(job.label, error)
        progress(job.label, stage.name, -1, -1, "")
    progress(label, stage.name, -2, -2, "")
    if not any(job in failed for job, _ in members):  # else what is trained waits for the next run
        remove(path)

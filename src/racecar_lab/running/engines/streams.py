"""The engine "streams": all nets of a method, one for each setting and seed, are one stack, which has a training loop
of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from racecar.support.files import remove
from racecar.support.full import is_full
from racecar.support.progress import TELL, Regularly
from racecar_lab.experiments.streams.config import CHOOSING, StreamsConfig, method_of
from racecar_lab.experiments.streams.learning import Learning
from racecar_lab.experiments.streams.searching import usual
from racecar_lab.running.engines.base import Failure, FullStage, Progress, RunOptions, failure
from racecar_lab.running.job import Job
from racecar_lab.running.record_writer import RecordWriter
from racecar_lab.running.results import Store, identity
from racecar_lab.stage import Measured
from racecar_lab.streams import MethodSetting
from racecar_lab.training import checkpoint
from racecar_lab.training.curves import short

AT_ONCE = 256
"""Maximal number of nets that are trained together as one stack."""
TIMED = 2.0
"""Number of seconds for which the first steps of a stack of nets are timed, to estimate the time of its whole training
(``--budget``)."""


def run(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Do all jobs, those of one method and configuration together."""
    check(jobs)
    store, failures = Store(options.folder), []
    for part in parts(jobs):
        try:
            if any(job.unfinished(store) for job in part):
                _do(part, store, options, progress)
        except Exception as error:
            full = FullStage("A") if is_full(error) else error
            failures.append(failure(_label(part), full))
    return failures


def check(jobs: Iterable[Job]) -> None:
    """Raise a ValueError for a search on seeds that are for the final comparison, for a final run on seeds of a search,
    and for methods that do not fit the net."""
    for job in jobs:
        method_of(job.variant, _config(job).norm)
        if (job.purpose == "search") is not (job.seed >= CHOOSING):
            what = "are for a search" if job.seed >= CHOOSING else "make the streams that are judged"
            raise ValueError(f"seed {job.seed}: seeds from {CHOOSING} on are for a search, others are judged: {what}")


def parts(jobs: Sequence[Job]) -> list[list[Job]]:
    """Groups of jobs whose nets can be trained as one stack."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        shared = {name: value for name, value in job.config.to_dict().items() if name not in job.config.stackable}
        groups.setdefault(identity({"variant": job.variant, "config": shared}), []).append(job)
    return [group[i : i + AT_ONCE] for group in groups.values() for i in range(0, len(group), AT_ONCE)]


def checkpoints(jobs: Sequence[Job], store: Store) -> list[Path]:
    """Paths of the checkpoints of the stacks that these jobs are trained as; there are files for those begun and not
    finished."""
    return [_checkpoint(part, store) for part in parts(jobs)]


def _checkpoint(jobs: Sequence[Job], store: Store) -> Path:
    return store.checkpoint(f"streams-{identity({'ids': [job.ids['A'] for job in jobs]})}")


def _label(jobs: Sequence[Job]) -> str:
    return f"{jobs[0].experiment.name} {jobs[0].variant} × {len(jobs)}"


def _config(job: Job) -> StreamsConfig:
    assert isinstance(job.config, StreamsConfig)
    return job.config


def learning(jobs: Sequence[Job], device: str) -> Learning:
    """The training of the jobs' nets as one stack, before its first step."""
    config, first = _config(jobs[0]), jobs[0]
    method = method_of(first.variant, config.norm)
    pool = first.experiment.data(config, first.seed, first.folder)["A"]
    settings = [
        MethodSetting(job.config.lr, job.weight or 0.0, _config(job).second or usual(method)[1]) for job in jobs
    ]
    return Learning(config, method, pool, [job.seed for job in jobs], settings, device)


def _do(jobs: Sequence[Job], store: Store, options: RunOptions, progress: Progress) -> None:
    """Train a group of jobs. A stack with a checkpoint comes first, with all of its nets, so that it continues bit for
    bit; then the jobs that are not finished yet."""
    path = _checkpoint(jobs, store)
    if not options.resume:
        remove(path)
    checkpoint.drop_damaged(path)
    if path.exists():
        with checkpoint.reading(path) as state:
            ids = set(state["ids"])
        _stack([job for job in jobs if job.ids["A"] in ids], path, store, options, progress)
    remaining = [job for job in jobs if not store.has(job.ids["A"])]
    if remaining:
        _stack(remaining, path, store, options, progress)


def _stack(jobs: Sequence[Job], path: Path, store: Store, options: RunOptions, progress: Progress) -> None:
    """Train jobs as one stack, measure each net and write its record."""
    began, nets, label = time.perf_counter(), learning(jobs, options.device), _label(jobs)
    if path.exists():
        with checkpoint.reading(path) as state:
            nets.load_state_dict(state["learning"])
    saved, due = time.monotonic(), Regularly(TELL)
    while not nets.over:
        nets.advance()
        # also at the end, for a kill while records are written
        if nets.over or time.monotonic() - saved >= options.interval:
            checkpoint.write(path, {"ids": [job.ids["A"] for job in jobs], "learning": nets.state_dict()})
            saved = time.monotonic()
        if due():
            progress(label, "A", nets.done, nets.total, "")
    cost = _cost((time.perf_counter() - began) / len(jobs), nets, options.device)
    writer = RecordWriter(store, options.maker, options.device)
    results = nets.measured(arrays=jobs[0].purpose != "search")
    for job, measured, finite in zip(jobs, results, nets.finite(), strict=True):
        if not store.has(job.ids["A"]):
            _write(job, measured, finite, cost, writer)
        progress(job.label, "A", -1, -1, "")
    progress(label, "A", -2, -2, "")
    remove(path)


def _cost(wall: float, nets: Learning, device: str) -> dict[str, Any]:
    """Time and memory as the record of one net has them: its share of the stack's time, and the memory of the whole
    stack."""
    cuda = torch.device(device).type == "cuda"
    return {
        "wall_s": short(wall),
        "step_s": short(nets.step_s / len(nets.right)),
        "steps": nets.total,
        "peak_memory": torch.cuda.max_memory_allocated(device) if cuda else None,
    }


def _write(job: Job, measured: Measured, finite: bool, cost: Mapping[str, Any], writer: RecordWriter) -> None:
    """Write the record of a net. One whose weights are not finite any more is not left out, because a method that loses
    nets would then look better than it is."""
    (stage,) = job.stages
    measured = replace(measured, metrics={**measured.metrics, "lost": float(not finite)})
    writer.finished(job, stage, measured, cost=cost, note="" if finite else "its weights are not finite at the end")


class Budget(NamedTuple):
    """The estimated cost of training a stack of nets: its method, number of nets, number of steps, and seconds of a
    step."""

    method: str
    nets: int
    steps: int
    step_s: float

    @property
    def seconds(self) -> float:
        """Estimated time of the whole training of the stack, in seconds."""
        return self.steps * self.step_s


def budget(jobs: Sequence[Job], options: RunOptions) -> list[Budget]:
    """Estimate the time of the training of every stack of nets that is not in the store yet, by timing its first steps.
    Nothing is written."""
    store, budgets = Store(options.folder), []
    for part in parts(jobs):
        unfinished = [job for job in part if job.unfinished(store)]
        if unfinished:
            nets = learning(unfinished, options.device)
            nets.advance()
            end = time.monotonic() + TIMED
            while time.monotonic() < end and not nets.over:
                nets.advance()
            budgets.append(Budget(unfinished[0].variant, len(unfinished), nets.total, nets.step_s or math.nan))
    return budgets

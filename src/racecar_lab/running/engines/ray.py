"""The engine "ray": jobs on a Ray cluster, or on this machine if no cluster is named."""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from racecar.support.extras import need
from racecar.support.importing import added
from racecar.support.interrupts import block_sigint
from racecar_lab.running.engines.base import Failure, Progress, RunOptions, do_job, failure
from racecar_lab.running.engines.mirror import Changes, Mirror
from racecar_lab.running.job import Job
from racecar_lab.running.results import Store
from racecar_lab.training.checkpoint import drop_damaged

ATTEMPTS = 3
"""Maximal number of times that a job is started, or continued after it lost its worker."""
LOOK = 1.0
"""Maximal number of seconds between two looks of a worker at its folder, after which new files, such as checkpoints,
are sent."""

News = tuple[list[tuple[Any, ...]], Changes, Failure | None]
"""One report of a worker: its progress messages, the changes of its folder, and its failure or None."""


def run(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Do all jobs. A worker writes into a folder of its own; its files, also checkpoints, are copied here at once, and
    files of a job that are here already are sent to its worker."""
    ray: Any = need("ray", "ray")
    start = not ray.is_initialized()
    if start:
        address = options.address or os.environ.get("RAY_ADDRESS") or "local"
        cores = {"num_cpus": options.workers} if options.workers and address == "local" else {}
        job = ray.job_config.JobConfig()
        # otherwise workers look for modules in the current folder first, even if this process looks there last
        job._client_job = os.getcwd() not in {*sys.path} - added
        quiet = {"log_to_driver": False, "include_dashboard": False, "configure_logging": False}
        with block_sigint():  # Ray replaces the handler of SIGTERM, and a half-started cluster is hard to end
            ray.init(address=address, job_config=job, **quiet, **cores)
    try:
        return _drive(ray, jobs, options, progress)
    finally:
        if start:
            ray.shutdown()


def _drive(ray: Any, jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Start jobs while workers are free, and receive their progress, files and failures. Returns the failures."""
    store, gpus = Store(options.folder), 0.25 if options.device.startswith("cuda") else 0
    # No retries by Ray, which starts a job anew; here it continues from its checkpoint.
    work = ray.remote(num_cpus=1, num_gpus=gpus, num_returns="streaming", max_retries=0)(_work)
    waiting, failures = deque(jobs), []
    running: dict[Any, Job] = {}
    begun: Counter[Job] = Counter()
    while waiting or running:
        while waiting and len(running) < (options.workers or len(jobs)):
            job = waiting.popleft()
            if not options.resume and not begun[job]:
                for stage in job.unfinished(store):
                    store.forget(job.ids[stage.name])
            drop_damaged(*(path for stage in job.unfinished(store) for path in store.begun(job.ids[stage.name])))
            begun[job] += 1
            running[work.remote(job, options, _files(job, store))] = job
        (news,), _ = ray.wait(list(running), num_returns=1)
        job = running[news]
        try:
            messages, changes, failed = ray.get(next(news))
        except StopIteration:
            del running[news]
        except ray.exceptions.RayError as error:
            del running[news]
            if isinstance(error, ray.exceptions.RayTaskError):
                failures.append(failure(job.label, error.cause or error))
            elif begun[job] < ATTEMPTS:
                waiting.append(job)
            else:
                message = f"its worker was lost {ATTEMPTS} times; run the same command with --resume to go on"
                failures.append(Failure(job.label, message, str(error)))
        else:
            changes.repeat(options.folder)
            for message in messages:
                progress(*message)
            if failed is not None:
                failures.append(failed)
    return failures


def _files(job: Job, store: Store) -> Changes:
    """The files of a job that its worker needs to continue: record and weights of its finished stages, checkpoints of
    the others."""
    paths: list[Path] = []
    for id in job.ids.values():
        paths += store.files(id) if store.has(id) else store.begun(id)
    return Changes({str(p.relative_to(store.folder)): p.read_bytes() for p in paths if p.exists()})


def _work(job: Job, options: RunOptions, begun: Changes) -> Iterator[News]:
    """Do a job, on the worker, and yield progress and files meanwhile."""
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begun.repeat(folder)
        mirror = Mirror(folder)
        threading.Thread(target=_do, args=(job, options, folder, messages), daemon=True).start()
        pause = min(LOOK, max(0.05, options.interval))
        end: list[Failure | None] = []
        while not end:
            received = _receive(messages, pause)
            end = [message for message in received if not isinstance(message, tuple)]
            progress = [message for message in received if isinstance(message, tuple)]
            changes = mirror.changes()
            if progress or changes or end:
                yield progress, changes, end[0] if end else None


def _receive(messages: queue.SimpleQueue[Any], seconds: float) -> list[Any]:
    """All messages in a queue, after waiting for the first one."""
    received = []
    with suppress(queue.Empty):
        received.append(messages.get(timeout=seconds))
        while True:
            received.append(messages.get_nowait())
    return received


def _do(job: Job, options: RunOptions, folder: Path, messages: queue.SimpleQueue[Any]) -> None:
    """Do a job, in a thread of its own. Puts messages of progress into the queue, at the end the failure or None."""
    import torch

    torch.set_num_threads(1)
    failed = None
    try:
        do_job(job, replace(options, folder=folder, resume=True), lambda *message: messages.put(message))
    except BaseException as error:  # of any kind: the other thread waits for the end
        failed = failure(job.label, error)
        local, target = str(folder), str(options.folder)  # paths in messages are those where the user finds the files
        failed = Failure(job.label, failed.message.replace(local, target), failed.details.replace(local, target))
    messages.put(failed)

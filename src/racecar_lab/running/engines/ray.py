"""Jobs on a Ray cluster; on this machine alone when none is named."""

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
from racecar_lab.running.jobs import Job
from racecar_lab.running.results import Store
from racecar_lab.training.checkpoint import drop_damaged

ATTEMPTS = 3
"""How often a job is begun, or gone on with, that loses its worker."""
LOOK = 1.0
"""Seconds at most until a checkpoint leaves its worker."""

News = tuple[list[tuple[Any, ...]], Changes, Failure | None]
"""What a worker tells: its messages of progress, what it wrote, and why it ended, if it failed."""


def run(jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    """Do all jobs. A worker has a folder of its own; what it writes into it, checkpoints too, is brought here at once,
    and what is here of a job goes with it to its worker."""
    ray: Any = need("ray", "ray")
    mine = not ray.is_initialized()
    if mine:
        address = options.address or os.environ.get("RAY_ADDRESS") or "local"
        cores = {"num_cpus": options.workers} if options.workers and address == "local" else {}
        job = ray.job_config.JobConfig()
        # or workers would look for modules in the current folder first, also where this process looks there last
        job._client_job = os.getcwd() not in {*sys.path} - added
        quiet = {"log_to_driver": False, "include_dashboard": False, "configure_logging": False}
        with block_sigint():  # it takes SIGTERM for itself, and half a cluster is hard to end
            ray.init(address=address, job_config=job, **quiet, **cores)
    try:
        return _drive(ray, jobs, options, progress)
    finally:
        if mine:
            ray.shutdown()


def _drive(ray: Any, jobs: Sequence[Job], options: RunOptions, progress: Progress) -> list[Failure]:
    store, gpus = Store(options.folder), 0.25 if options.device.startswith("cuda") else 0
    # A job that loses its worker goes on from its checkpoint, which is here: Ray would begin it anew.
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
        (one,), _ = ray.wait(list(running), num_returns=1)
        job = running[one]
        try:
            messages, changes, failed = ray.get(next(one))
        except StopIteration:
            del running[one]
        except ray.exceptions.RayError as error:
            del running[one]
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
    """What the store holds of a job already."""
    paths: list[Path] = []
    for id in job.ids.values():
        paths += store.files(id) if store.has(id) else store.begun(id)
    return Changes({str(p.relative_to(store.folder)): p.read_bytes() for p in paths if p.exists()})


def _work(job: Job, options: RunOptions, begun: Changes) -> Iterator[News]:
    """On the worker: do a job, and tell what comes of it while it is done."""
    said: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        begun.repeat(folder)
        mirror = Mirror(folder)
        threading.Thread(target=_do, args=(job, options, folder, said), daemon=True).start()
        pause = min(LOOK, max(0.05, options.interval))
        end: list[Failure | None] = []
        while not end:
            heard = _hear(said, pause)
            end = [one for one in heard if not isinstance(one, tuple)]
            messages = [one for one in heard if isinstance(one, tuple)]
            changes = mirror.changes()
            if messages or changes or end:
                yield messages, changes, end[0] if end else None


def _hear(said: queue.SimpleQueue[Any], seconds: float) -> list[Any]:
    """All that was said, after waiting for something to be said."""
    heard = []
    with suppress(queue.Empty):
        heard.append(said.get(timeout=seconds))
        while True:
            heard.append(said.get_nowait())
    return heard


def _do(job: Job, options: RunOptions, folder: Path, said: queue.SimpleQueue[Any]) -> None:
    """Beside the one that tells: messages of progress, and in the end the failure or None."""
    import torch

    torch.set_num_threads(1)
    failed = None
    try:
        do_job(job, replace(options, folder=folder, resume=True), lambda *message: said.put(message))
    except BaseException as error:  # whatever it is, the other one must hear of it
        failed = failure(job.label, error)
        here, there = str(folder), str(options.folder)  # files are named as they are called where the user finds them
        failed = Failure(job.label, failed.message.replace(here, there), failed.details.replace(here, there))
    said.put(failed)

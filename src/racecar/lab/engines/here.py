"""Jobs on this machine: one after the other, or in as many processes as fit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any

import torch

from racecar.lab.engines.base import Failure, Plan, Progress, do_job, failure
from racecar.lab.engines.processes import context, cores, deaf
from racecar.lab.jobs import Job
from racecar.lab.variants import variant
from racecar.orphans import end_with_parent

ON_ONE_GPU = 4
"""Processes that share a GPU unless the user says otherwise."""


def run(jobs: Sequence[Job], plan: Plan, progress: Progress) -> list[Failure]:
    """Do all jobs; those that fail are returned, the others are in the store."""
    workers = min(plan.workers or _fitting(plan.device), len(jobs))
    if workers <= 1:
        return [failed for job in jobs if (failed := _attempt(job, plan, progress)) is not None]
    jobs = sorted(jobs, key=_size, reverse=True)  # or one worker does the longest one while the others have ended
    processes = context(plan.device)
    messages, mine = processes.Pipe(duplex=False)
    drain = threading.Thread(target=_drain, args=(messages, progress), daemon=True)
    with deaf():  # or it would hear of Ctrl-C for the main thread
        drain.start()
    given = mine, processes.Lock(), max(1, cores() // workers), dict(os.environ)
    try:
        with ProcessPoolExecutor(workers, processes, _start, given) as pool:
            try:
                with deaf():
                    futures = [pool.submit(_work, job, plan) for job in jobs]
                return _collect(jobs, futures)
            except KeyboardInterrupt:
                for process in list((pool._processes or {}).values()):
                    process.terminate()
                pool.shutdown(cancel_futures=True)  # its thread is not to end after this one
                raise
    finally:
        mine.close()  # with the last end that can be written to, the messages end: a killed worker may hold the lock
        drain.join()
        messages.close()


def _collect(jobs: Sequence[Job], futures: Sequence[Future[Failure | None]]) -> list[Failure]:
    failures = []
    for job, future in zip(jobs, futures, strict=True):
        try:
            failed = future.result()
        except BrokenProcessPool as error:
            message = "a worker process was killed; run the same command again to go on"
            failed = Failure(job.label, message, repr(error))
        if failed is not None:
            failures.append(failed)
    return failures


def _size(job: Job) -> int:
    """Grows with the time that a job takes; a regularised step takes about twice as long as a plain one."""
    with torch.device("meta"):  # no numbers, and none drawn
        network = job.experiment.network(job.config)
    passes = 2 if variant(job.variant).kind in ("reverse", "orthogonality") else 1
    return passes * job.config.epochs * sum(parameter.numel() for parameter in network.parameters())


def _fitting(device: str) -> int:
    return ON_ONE_GPU if device.startswith("cuda") else cores()


def _attempt(job: Job, plan: Plan, progress: Progress) -> Failure | None:
    try:
        do_job(job, plan, progress)
    except Exception as error:
        return failure(job.label, error)
    return None


_messages: Any = None
_lock: Any = None


def _start(messages: Any, lock: Any, threads: int, environment: Mapping[str, str]) -> None:
    """A worker process begins. What it was forked from may be older than the environment."""
    global _messages, _lock
    _messages, _lock = messages, lock
    os.environ.update(environment)
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where deaf() can do nothing
    end_with_parent()


def _work(job: Job, plan: Plan) -> Failure | None:
    return _attempt(job, plan, _say)


def _say(*message: Any) -> None:
    with _lock:
        _messages.send(message)


def _drain(messages: Any, progress: Progress) -> None:
    with suppress(EOFError, OSError):  # OSError: the last one was killed in the middle of a message
        while True:
            progress(*messages.recv())

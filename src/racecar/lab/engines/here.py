"""Jobs on this machine: one after the other, or in as many processes as fit."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from racecar.lab.engines.base import Failure, Plan, Progress, do_job
from racecar.lab.jobs import Job

ON_ONE_GPU = 4
"""Processes that share a GPU unless the user says otherwise."""


def run(jobs: Sequence[Job], plan: Plan, progress: Progress) -> list[Failure]:
    """Do all jobs; those that fail are returned, the others are in the store."""
    workers = min(plan.workers or _fitting(plan.device), len(jobs))
    if workers <= 1:
        return [failure for job in jobs if (failure := _attempt(job, plan, progress)) is not None]
    context = multiprocessing.get_context("spawn")
    messages: Any = context.SimpleQueue()
    drain = threading.Thread(target=_drain, args=(messages, progress), daemon=True)
    drain.start()
    threads = max(1, _cores() // workers)
    with ProcessPoolExecutor(workers, context, _start, (messages, threads)) as pool:
        futures: list[Future[Failure | None]] = [pool.submit(_work, job, plan) for job in jobs]
        failures = []
        for job, future in zip(jobs, futures, strict=True):
            try:
                failure = future.result()
            except BrokenProcessPool as error:
                message = "a worker process was killed; run the same command again to go on"
                failure = Failure(job.label, message, repr(error))
            except KeyboardInterrupt:
                for process in pool._processes.values():
                    process.terminate()
                raise
            if failure is not None:
                failures.append(failure)
    messages.put(None)
    drain.join()
    return failures


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _fitting(device: str) -> int:
    return ON_ONE_GPU if device.startswith("cuda") else _cores()


def _attempt(job: Job, plan: Plan, progress: Progress) -> Failure | None:
    try:
        do_job(job, plan, progress)
    except Exception as error:
        return Failure(job.label, f"{type(error).__name__}: {error}".splitlines()[0], traceback.format_exc())
    return None


_messages: Any = None


def _start(messages: Any, threads: int) -> None:
    """A worker process begins."""
    global _messages
    _messages = messages
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Nobody waits for the work of an orphan."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(job: Job, plan: Plan) -> Failure | None:
    return _attempt(job, plan, lambda *message: _messages.put(message))


def _drain(messages: Any, progress: Progress) -> None:
    while (message := messages.get()) is not None:
        progress(*message)

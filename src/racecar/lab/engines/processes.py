"""How worker processes are made. It imports no torch, so that they can begin to while their parent does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import BaseContext

IMPORTED = ["racecar.lab.engines.here", "racecar.lab.experiments", "torch._dynamo"]
"""By the process that workers are forked from; the first optimiser of a process would import the last one."""


def context(device: str) -> BaseContext:
    """On a CPU workers are forked from a process that does nothing but import, which starts now: they are there soon.
    CUDA's start anew, and so do all where nothing can be forked."""
    if device != "cpu" or "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(IMPORTED)
    with deaf(), _same_path():
        forkserver.ensure_running()
    return found


def warm_up(engine: str, device: str, workers: int) -> None:
    """Begin, before this process imports torch itself, where it will ask for workers."""
    alone = (workers or cores()) == 1 or "WORLD_SIZE" in os.environ  # as under torchrun
    if engine == "here" and not alone:
        context(device)


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def deaf() -> Iterator[None]:
    """Processes that are started meanwhile never hear of Ctrl-C, not even while they import: their parent decides. It
    hears of it afterwards itself."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _same_path() -> Iterator[None]:
    """A process that is started meanwhile imports from where this one does, not another racecar."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before

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

IMPORTED = ["racecar.lab.engines.vmap", "racecar.lab.experiments", "torch._dynamo"]
"""By the process that workers are forked from; the first optimiser of a process would import the last one."""


_warm = False


def warm_up(engine: str, device: str, workers: int) -> None:
    """Start what workers are forked from, if there will be some on a CPU: to be called by a command before it imports
    torch itself. It is the one such process that Python has, so it is no library's business to start it."""
    global _warm
    several = {"here": workers or cores(), "vmap": workers}.get(engine, 0) > 1
    alone = not several or "WORLD_SIZE" in os.environ  # as under torchrun
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    if device == "cpu" and forks and not alone:
        multiprocessing.set_forkserver_preload(IMPORTED)
        with deaf(), _same_path():
            forkserver.ensure_running()
        _warm = True


def context(device: str) -> BaseContext:
    """Workers for a CPU are forked from what ``warm_up`` started; CUDA's, and all where it did not, start anew."""
    return multiprocessing.get_context("forkserver" if _warm and device == "cpu" else "spawn")


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

"""How worker processes are made. It imports no torch, so that they can begin to while their parent does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pathlib import Path

from racecar.support.interrupts import at_end, block_sigint

_warm = False


def warm_up(engine: str, device: str, workers: int) -> None:
    """Start what workers are forked from, if there will be some on a CPU: to be called by a command before it imports
    torch itself. It is the one such process that Python has, so it is no library's business to start it."""
    global _warm
    several = {"here": workers or cores(), "vmap": workers}.get(engine, 0) > 1
    alone = not several or "WORLD_SIZE" in os.environ  # as under torchrun
    forks = "forkserver" in multiprocessing.get_all_start_methods()
    if device == "cpu" and forks and not alone:
        multiprocessing.set_forkserver_preload(["racecar_lab.running.engines.preloaded"])
        with block_sigint(), _same_path():
            forkserver.ensure_running()
        at_end.append(end_fork_server)  # by itself it would not end before it has imported all
        _warm = True


def _server() -> int | None:
    """The process that workers are forked from; Python has no public name for it."""
    pid: int | None = vars(forkserver)["_forkserver"]._forkserver_pid
    return pid


def end_fork_server() -> None:
    """Whatever it does, and with it all that was forked from it: nobody may have been told yet of the last one. Workers
    start anew from now on."""
    global _warm
    if _warm and (pid := _server()) is not None and not fork_server_lost():
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # from now on it forks no more
        for child in _forked_from(pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
    _warm = False


def _forked_from(pid: int) -> list[int]:
    """A process's children, where /proc tells them, as on Linux."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            after_name = path.read_text().rpartition(")")[2].split()
            if int(after_name[1]) == pid:
                found.append(int(path.parent.name))
    return found


def context(device: str) -> BaseContext:
    """Workers for a CPU are forked from what ``warm_up`` started; CUDA's, and all where it did not, start anew."""
    return multiprocessing.get_context("forkserver" if _warm and device == "cpu" else "spawn")


def fork_server_lost() -> str:
    """How what ``warm_up`` started has ended; empty while it lives, or where there is none."""
    if not _warm or (pid := _server()) is None:
        return ""
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return "ended"
    if found is None:
        return ""
    return f"{'ended with status' if found.si_code == os.CLD_EXITED else 'was killed by signal'} {found.si_status}"


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _same_path() -> Iterator[None]:
    """A process that is started meanwhile imports from where this one does, not another racecar, and not from the
    current folder unless this one does."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry and os.pathsep not in entry)
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before

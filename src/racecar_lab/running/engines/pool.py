"""Does pieces of work in several processes of this machine, and shows their progress.

Workers start anew ("spawn"): each imports torch and the laboratory, four seconds of a core. Forking
them from a process that has imported everything saves these seconds, but takes twice the code, and is not possible with
CUDA. This adds to ``concurrent.futures``: messages of progress, Ctrl-C that ends everything within seconds, and workers
that end with their parent, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import zip_longest
from typing import Any, TypeVar

import torch

from racecar.support.interrupts import AGAIN, block_sigint
from racecar.support.processes import end_with
from racecar_lab.running.engines.base import Failure, Progress, RunOptions

T = TypeVar("T")
Work = Callable[[T, RunOptions, Progress], list[Failure]]
"""A function that does one piece of work and returns its failures; other processes must be able to import it."""
PATIENCE = 3.0
"""Maximal number of seconds to wait at the end for the thread that receives messages, which should end immediately."""


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_out(
    pieces: Sequence[T], work: Work[T], name: Callable[[T], str], workers: int, options: RunOptions, progress: Progress
) -> list[Failure]:
    """Do all pieces of work in several processes, started in this order. Returns the failures.

    Args:
        name: gives the name of a piece, for the failure if its process is killed.
        workers: number of processes.
    """
    processes = multiprocessing.get_context("spawn")
    messages, messages_in = processes.Pipe(duplex=False)
    leash_out, leash = processes.Pipe(duplex=False)
    drain = threading.Thread(target=_drain, args=(messages, progress), daemon=True)
    drain.start()
    arguments = messages_in, leash_out, processes.Lock(), max(1, cores() // workers)
    pool = ProcessPoolExecutor(workers, processes, _start, arguments)
    futures: list[Future[list[Failure]]] = []
    try:
        with block_sigint(), suppress(BrokenProcessPool):
            for piece in pieces:
                futures.append(pool.submit(_work, work, piece, options))
        return _collect([name(piece) for piece in pieces], futures)
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()
        raise
    finally:
        with block_sigint():
            pool.shutdown(wait=False, cancel_futures=True)
            leash.close()  # ends every worker, whatever it is doing
            messages_in.close()  # ends the thread: nobody can write any more
            drain.join(PATIENCE)


def _collect(names: Sequence[str], futures: Sequence[Future[list[Failure]]]) -> list[Failure]:
    """Wait for all pieces of work and return their failures; a piece has no future if the workers died before it was
    submitted."""
    failures: list[Failure] = []
    for name, future in zip_longest(names, futures):
        try:
            if future is None:
                raise BrokenProcessPool("there is no worker left")
            failures += future.result()
        except BrokenProcessPool as error:
            failures.append(Failure(name, f"a worker process was killed; {AGAIN} to go on", repr(error)))
    return failures


_messages: Any = None
_lock: Any = None


def _start(messages: Any, leash: Any, lock: Any, threads: int) -> None:
    """Initialise a worker process: its connection to the parent, threads, signals and warnings."""
    global _messages, _lock
    _messages, _lock = messages, lock
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for cases in which block_sigint() has no effect
    end_with(leash)
    warnings.simplefilter("ignore")
    warnings.simplefilter("default", UserWarning)
    warnings.showwarning = lambda message, *_, **__: _send(str(message))


def _work(work: Work[T], piece: T, options: RunOptions) -> list[Failure]:
    """Do a piece of work, in a worker process, and return its failures."""
    return work(piece, options, _send)


def _send(*message: Any) -> None:
    """Send the arguments of ``Progress``, or a single warning, to the parent."""
    with _lock:
        _messages.send(message)


def _drain(messages: Any, progress: Progress) -> None:
    """Receive the workers' progress and warnings until they have ended; runs in a thread of the parent."""
    with suppress(EOFError, OSError):  # OSError: the last worker was killed in the middle of a message
        while True:
            message = messages.recv()
            if len(message) == 1:
                warnings.warn(message[0], stacklevel=2)
            else:
                progress(*message)

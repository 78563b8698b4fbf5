"""Pieces of work in several processes of this machine, which say how far they are.

Workers start anew ("spawn"): each imports torch and the laboratory, four seconds of a core. To fork them from a process
that has imported all saved a command these seconds, cost twice the code, and is not possible with CUDA. What
``concurrent.futures`` does not do is added: messages of progress, Ctrl-C that ends everything within seconds, and
workers that end with their parent, however that ends.
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
"""Does one piece and returns what failed of it; a function that another process can import."""
PATIENCE = 3.0
"""Seconds to wait for threads that should end at once."""


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_out(
    pieces: Sequence[T], work: Work[T], name: Callable[[T], str], workers: int, options: RunOptions, progress: Progress
) -> list[Failure]:
    """Do all pieces, in this order.

    Args:
        name: of a piece whose process was killed.
        workers: processes.
    """
    processes = multiprocessing.get_context("spawn")
    messages, theirs = processes.Pipe(duplex=False)
    held, leash = processes.Pipe(duplex=False)
    drain = threading.Thread(target=_drain, args=(messages, progress), daemon=True)
    drain.start()
    begin = theirs, held, processes.Lock(), max(1, cores() // workers)
    pool = ProcessPoolExecutor(workers, processes, _start, begin)
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
            leash.close()  # whatever a worker does, it ends now
            theirs.close()  # with the last end that can be written to, the messages end
            drain.join(PATIENCE)


def _collect(names: Sequence[str], futures: Sequence[Future[list[Failure]]]) -> list[Failure]:
    """What failed; a piece has no future if the workers were lost before it was submitted."""
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
    """A worker process begins."""
    global _messages, _lock
    _messages, _lock = messages, lock
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where block_sigint() can do nothing
    end_with(leash)
    warnings.simplefilter("ignore")
    warnings.simplefilter("default", UserWarning)
    warnings.showwarning = lambda message, *_, **__: _say(str(message))


def _work(work: Work[T], piece: T, options: RunOptions) -> list[Failure]:
    return work(piece, options, _say)


def _say(*message: Any) -> None:
    """How far a job is, or a warning alone."""
    with _lock:
        _messages.send(message)


def _drain(messages: Any, progress: Progress) -> None:
    with suppress(EOFError, OSError):  # OSError: the last one was killed in the middle of a message
        while True:
            message = messages.recv()
            if len(message) == 1:
                warnings.warn(message[0], stacklevel=2)
            else:
                progress(*message)

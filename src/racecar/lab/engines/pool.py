"""Pieces of work in several processes of this machine, which say how far they are."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any, TypeVar

import torch

from racecar.lab.engines.base import Failure, Plan, Progress
from racecar.lab.engines.processes import context, cores, deaf
from racecar.orphans import end_with_parent

T = TypeVar("T")
Work = Callable[[T, Plan, Progress], list[Failure]]
"""Does one piece and returns what failed of it; a function that another process can import."""


def share_out(
    pieces: Sequence[T], work: Work[T], name: Callable[[T], str], workers: int, plan: Plan, progress: Progress
) -> list[Failure]:
    """Do all pieces, in this order.

    Args:
        name: of a piece whose process was killed.
        workers: processes.
    """
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
                    futures = [pool.submit(_work, work, piece, plan) for piece in pieces]
                return _collect([name(piece) for piece in pieces], futures)
            except KeyboardInterrupt:
                for process in list((pool._processes or {}).values()):
                    process.terminate()
                pool.shutdown(cancel_futures=True)  # its thread is not to end after this one
                raise
    finally:
        mine.close()  # with the last end that can be written to, the messages end: a killed worker may hold the lock
        drain.join()
        messages.close()


def _collect(names: Sequence[str], futures: Sequence[Future[list[Failure]]]) -> list[Failure]:
    failures = []
    for name, future in zip(names, futures, strict=True):
        try:
            failures += future.result()
        except BrokenProcessPool as error:
            message = "a worker process was killed; run the same command again to go on"
            failures.append(Failure(name, message, repr(error)))
    return failures


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


def _work(work: Work[T], piece: T, plan: Plan) -> list[Failure]:
    return work(piece, plan, _say)


def _say(*message: Any) -> None:
    with _lock:
        _messages.send(message)


def _drain(messages: Any, progress: Progress) -> None:
    with suppress(EOFError, OSError):  # OSError: the last one was killed in the middle of a message
        while True:
            progress(*messages.recv())

"""Pieces of work in several processes of this machine, which say how far they are."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any, TypeVar

import torch

from racecar.support.interrupts import AGAIN, block_sigint
from racecar.support.processes import end_with
from racecar_lab.running.engines.base import Failure, Progress, RunOptions
from racecar_lab.running.engines.processes import context, cores, end_fork_server, fork_server_lost

T = TypeVar("T")
Work = Callable[[T, RunOptions, Progress], list[Failure]]
"""Does one piece and returns what failed of it; a function that another process can import."""
LOST = "the process that workers are forked from"
GRACE = 1.0
"""Seconds in which workers that are being started may yet begin."""
PATIENCE = 3.0
"""Seconds to wait for processes and threads that should end at once."""


def share_out(
    pieces: Sequence[T], work: Work[T], name: Callable[[T], str], workers: int, options: RunOptions, progress: Progress
) -> list[Failure]:
    """Do all pieces, in this order.

    Args:
        name: of a piece whose process was killed.
        workers: processes.
    """
    crew = None
    try:
        with block_sigint():
            crew = _Crew(workers, options, progress)
            crew.hire(pieces, work, options)
        return _collect([name(piece) for piece in pieces], crew.futures)
    except BaseException:
        if crew is not None:
            crew.kill()
        raise
    finally:
        if crew is not None:
            with block_sigint():
                crew.dismiss()


class _Crew:
    """Workers, and the pipes between them and this process."""

    def __init__(self, workers: int, options: RunOptions, progress: Progress) -> None:
        if how := fork_server_lost():
            raise ChildProcessError(f"{LOST} {how}; {AGAIN}, or with --workers 1")
        processes = context(options.device)
        self._messages, self._theirs = processes.Pipe(duplex=False)
        held, self._leash = processes.Pipe(duplex=False)
        self._drain = threading.Thread(target=_drain, args=(self._messages, progress), daemon=True)
        self._drain.start()
        given = self._theirs, held, processes.Lock(), max(1, cores() // workers), dict(os.environ)
        self._pool = ProcessPoolExecutor(workers, processes, _start, given)

    def hire(self, *given: Any) -> None:
        """In a thread of its own: what workers are forked from may have to import first, and no process may be started
        that nobody knows, as one would where this is interrupted."""
        self._hiring = threading.Thread(target=self._hire, args=given, daemon=True)
        self._hiring.start()

    def _hire(self, pieces: Sequence[T], work: Work[T], options: RunOptions) -> None:
        self._futures: list[Future[list[Failure]]] = []
        for piece in pieces:
            try:
                self._futures.append(self._pool.submit(_work, work, piece, options))
            except (EOFError, OSError, RuntimeError) as error:  # RuntimeError: it is broken, or shut down meanwhile
                failed: Future[list[Failure]] = Future()
                failed.set_exception(BrokenProcessPool(repr(error)))
                self._futures.append(failed)

    @property
    def futures(self) -> list[Future[list[Failure]]]:
        """One for each piece."""
        self._hiring.join()
        return self._futures

    def kill(self) -> None:
        self._hiring.join(GRACE)  # a worker that is just being started is known, and can be killed, a moment later
        if self._hiring.is_alive():
            end_fork_server()
            self._hiring.join(PATIENCE)
        for process in list((self._pool._processes or {}).values()):
            process.kill()

    def dismiss(self) -> None:
        """Nobody is waited for in vain: a worker may be stuck, or nobody's child any more, and still hold a pipe."""
        end = threading.Thread(target=self._pool.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        end.start()
        end.join(PATIENCE)
        self._leash.close()
        self._theirs.close()  # with the last end that can be written to, the messages end
        self._drain.join(PATIENCE)


def _collect(names: Sequence[str], futures: Sequence[Future[list[Failure]]]) -> list[Failure]:
    failures, why = [], ""
    for name, future in zip(names, futures, strict=True):
        try:
            failures += future.result()
        except BrokenProcessPool as error:
            why = why or _why()
            failures.append(Failure(name, f"{why}; {AGAIN} to go on", repr(error)))
    return failures


def _why() -> str:
    """What became of the workers. What they are forked from may be heard to end before it can be asked how."""
    until = time.monotonic() + 0.5
    while not (how := fork_server_lost()) and time.monotonic() < until:
        time.sleep(0.05)
    return f"{LOST} {how}" if how else "a worker process was killed"


_messages: Any = None
_lock: Any = None


def _start(messages: Any, leash: Any, lock: Any, threads: int, environment: Mapping[str, str]) -> None:
    """A worker process begins. What it was forked from may be older than the environment."""
    global _messages, _lock
    _messages, _lock = messages, lock
    os.environ.update(environment)
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

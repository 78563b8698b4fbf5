"""Kinds of steps in a process of their own: compiled beside others, timed when they are asked to."""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch

from racecar.bench.kinds import PLAIN, Kind
from racecar.bench.measure import Say, Work, describe
from racecar.bench.memory import patiently
from racecar.bench.timing import Burst
from racecar.bench.workload import About, Circumstances, Open
from racecar.support.interrupts import block_sigint
from racecar.support.processes import end_with_parent

PATIENCE = 120.0
"""Seconds that a process waits for memory which others, that compile beside it, hold for the moment."""
END = 3.0
"""Seconds that a killed process is waited for."""


class Remote:
    """Some kinds of steps of one model, which another process works on.

    ``found``, ``flops`` and ``about`` are those of its ``Work``, once it has been heard to the end.
    """

    def __init__(self, name: str, open_model: Open, how: Circumstances, kinds: Sequence[Kind]) -> None:
        self.name, self.kinds = name, kinds
        self.found: dict[Kind, dict[str, Any]] = {}
        self.flops: tuple[int, int] | None = None
        self.about: About | None = None
        self.error = ""
        """Why nothing came of it."""
        self._task = (name, open_model, how, kinds)
        self._process: Any = None

    def start(self, threads: int) -> Connection:
        """Begin to compile, with so many threads; what the process has to say comes from this connection."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, torch.get_num_threads(), threads, *self._task)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        with block_sigint():  # or it could be started and nobody know of it
            self._process.start()
        theirs.close()
        return self._connection

    def hear(self, say: Say) -> bool:
        """Take one message; False: it was the last one, and the process waits or has ended."""
        word, *content = self._receive()
        if word == "progress":
            say(*content)
        elif word == "warning":
            warnings.warn(f"{self.name}: {content[0]}", stacklevel=2)
        elif word == "ready":
            self.found, self.flops, self.about = content
        else:
            self._failed(content[0])
        return word in ("progress", "warning")

    def bursts(self) -> dict[str, Burst]:
        """By label, what times a burst of steps over there."""
        if self.about is None:
            return {}
        try:
            labels, self.found = self._ask("bursts")
        except RuntimeError as error:
            self._failed(str(error))
            return {}
        return {label: partial(self._ask, label) for label in labels}

    def _failed(self, why: str) -> None:
        self.error = why
        self.found = {replace(kind, every=1): {"error": why} for kind in self.kinds}

    def _ask(self, *message: Any) -> Any:
        self._connection.send(message)
        word, content = self._receive()
        if word == "error":
            raise RuntimeError(content)
        return content

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return "error", "its process ended: it may have been killed for memory"

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join(END)


def _serve(
    parent: Connection,
    threads: int,
    compile_threads: int,
    name: str,
    open_model: Open,
    how: Circumstances,
    kinds: Sequence[Kind],
) -> None:
    """What the process does: prepare, then answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    end_with_parent()
    torch.set_num_threads(threads)
    if how.compile:
        from torch._inductor import config

        config.compile_threads = compile_threads  # else every process starts a worker for every core

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        parent.send(("warning", str(message)))

    say: Say = lambda done, note: parent.send(("progress", done, note))  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        try:
            work = patiently(lambda: Work(name, open_model, how, kinds, say, PATIENCE), lambda: None, PATIENCE)
            work.prepare(count=PLAIN in kinds)
        except Exception as error:
            parent.send(("error", describe(error)))
            return
    parent.send(("ready", work.own(), work.flops, work.about))
    bursts: dict[str, Burst] = {}
    while True:
        word, *rest = parent.recv()
        try:
            if word == "bursts":
                bursts = work.bursts()
                parent.send(("answer", (list(bursts), work.own())))
            else:
                parent.send(("answer", bursts[word](*rest)))
        except Exception as error:
            parent.send(("error", describe(error)))

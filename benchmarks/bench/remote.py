"""Kinds of steps in a process of their own: compiled beside others, timed when they are asked to."""

from __future__ import annotations

import multiprocessing
import signal
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

from racecar.bench.kinds import Kind
from racecar.bench.measure import Details, Measurement, Say, describe
from racecar.bench.timing import Burst, Step, fast_device
from racecar.bench.workload import Description, OpenModel, StepOptions
from racecar.support.full import is_full
from racecar.support.interrupts import block_sigint
from racecar.support.processes import end_with_parent

PATIENCE = 120.0
"""Seconds that a process waits for memory which others, that compile beside it, hold for the moment."""
END = 3.0
"""Seconds that a killed process is waited for."""

T = TypeVar("T")


class Remote:
    """Some kinds of steps of one model, which another process works on.

    ``details``, ``flops`` and ``description`` are those of its measurement, once it has been heard to the end.
    """

    def __init__(self, name: str, open_model: OpenModel, options: StepOptions, kinds: Sequence[Kind]) -> None:
        self.name, self.kinds = name, kinds
        self.details: dict[Kind, Details] = {}
        self.flops: tuple[int, int] | None = None
        self.description: Description | None = None
        self.error = ""
        """Why there is no measurement."""
        self._task = (name, open_model, options, kinds)
        self._process: Any = None

    def start(self, threads: int) -> Connection:
        """Begin to compile, with so many threads; what the process has to say comes from this connection."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, torch.get_num_threads(), threads, *self._task)
        self._process = context.Process(target=serve, args=arguments, daemon=True)
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
            self.details, self.flops, self.description = content
        else:
            self._failed(content[0])
        return word in ("progress", "warning")

    def bursts(self) -> dict[str, Burst]:
        """By label, what times a burst of steps in that process."""
        if self.description is None:
            return {}
        try:
            labels, self.details = self._ask("bursts")
        except RuntimeError as error:
            self._failed(str(error))
            return {}
        return {label: partial(self._ask, label) for label in labels}

    def _failed(self, why: str) -> None:
        self.error = why
        self.details = {kind.once(): {"error": why} for kind in self.kinds}

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


class PatientMeasurement(Measurement):
    """Waits for memory that other processes hold."""

    def make(self, kind: Kind) -> tuple[Step, Details]:
        return patiently(lambda: super(PatientMeasurement, self).make(kind), self.workload.clear_gradients)

    def own_details(self) -> dict[Kind, Details]:
        """The details of the kinds that were asked for."""
        asked = {kind.once() for kind in self.kinds}
        return {kind: details for kind, details in self.details.items() if kind in asked}


def patiently(work: Callable[[], T], clear: Step = lambda: None, patience: float = PATIENCE) -> T:
    """``work()``, tried again for so many seconds while the device has no memory left: others may hold it."""
    until = time.monotonic() + patience
    while True:
        try:
            return work()
        except Exception as error:
            if time.monotonic() >= until or not is_full(error):
                raise
        clear()
        torch.cuda.empty_cache()
        time.sleep(1)


def serve(parent: Connection, threads: int, compile_threads: int, *task: Any) -> None:
    """Run the process: compile, then answer the parent. ``task`` are the arguments of a `Measurement`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    end_with_parent()
    torch.set_num_threads(threads)
    options: StepOptions = task[2]
    if options.compile:
        from torch._inductor import config

        config.compile_threads = compile_threads  # else every process starts a worker for every core
    with fast_device(options.cuda):
        try:
            measurement = prepared(parent, task)
        except Exception as error:
            parent.send(("error", describe(error)))
        else:
            parent.send(("ready", measurement.own_details(), measurement.flops, measurement.workload.description))
            answer(parent, measurement)


def prepared(parent: Connection, task: Sequence[Any]) -> PatientMeasurement:
    """The measurement after ``prepare``; the parent hears of its progress and of its warnings."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        parent.send(("warning", str(message)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        measurement = patiently(lambda: PatientMeasurement(*task))
        measurement.prepare(lambda done, note: parent.send(("progress", done, note)))
    return measurement


def answer(parent: Connection, measurement: PatientMeasurement) -> None:
    """Answer the parent for ever: to "bursts" with their labels and the details, to (label, length) with seconds."""
    bursts: dict[str, Burst] = {}
    while True:
        word, *rest = parent.recv()
        try:
            if word == "bursts":
                bursts = measurement.bursts()
                parent.send(("answer", (list(bursts), measurement.own_details())))
            else:
                parent.send(("answer", bursts[word](*rest)))
        except Exception as error:
            parent.send(("error", describe(error)))

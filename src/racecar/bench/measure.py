"""Kinds of steps of one model: made, compiled, measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from racecar.bench import floor, memory, timing
from racecar.bench.kernels import parts
from racecar.bench.kinds import PLAIN, Kind, loss_function, srip_as_published
from racecar.bench.record import model_record
from racecar.bench.workload import About, Circumstances, Open, Workload

T = TypeVar("T")
Say = Callable[[int, str], None]
"""(units of work that are done since the last call, what was done)."""


def units(kinds: Sequence[Kind], rounds: int) -> int:
    """Units of work of one model."""
    return len(kinds) + rounds


class Prepared(Protocol):
    """Kinds of steps that are ready to be timed, here or in another process."""

    about: About | None
    flops: tuple[int, int] | None
    found: dict[Kind, dict[str, Any]]

    def bursts(self) -> Mapping[str, timing.Burst]:
        """By label; may put errors into ``found``."""


def measure(first: Prepared, parts: Sequence[Prepared], kinds: Sequence[Kind], rounds: int, say: Say) -> dict[str, Any]:
    """Time what is prepared of one model: its part of the record. Wants the machine for itself.

    Args:
        first: the one that knows the model.
        parts: all of them.
        kinds: all kinds, in the order of the record.
        rounds: timed rounds.
        say: told of every round.
    """
    assert first.about is not None
    made = {label: burst for one in parts for label, burst in one.bursts().items()}
    bursts = {kind.label: made[kind.label] for kind in kinds if kind.label in made}
    length, seconds = 1, {}
    if bursts:
        length = timing.burst_length(next(iter(bursts.values())), first.about.how.cuda)
        seconds = timing.interleaved(bursts, rounds, length, lambda i: say(1, f"round {i} of {rounds}"))
    else:
        say(rounds, "nothing to measure")
    found = {kind: about for one in parts for kind, about in one.found.items()}
    return model_record(first.about, kinds, found, first.flops, length, seconds)


class Work:
    """Some kinds of steps of one model, in this process. ``prepare`` compiles and may run beside others."""

    def __init__(
        self,
        name: str,
        open_model: Open,
        how: Circumstances,
        kinds: Sequence[Kind],
        say: Say,
        patience: float = 0.0,
    ) -> None:
        self.how, self.kinds, self.say = how, kinds, say
        self.patience = patience
        """Seconds to wait for memory that other processes hold for the moment."""
        if how.cuda and (index := torch.device(how.device).index) is not None:
            torch.cuda.set_device(index)  # memory and events are those of the current device
        self.workload = Workload(name, *open_model(name), how)
        self.about: About | None = self.workload.about
        self.flops: tuple[int, int] | None = None
        self.losses: dict[Kind, Callable[[], Tensor]] = {}
        self.steps: dict[Kind, timing.Call] = {}
        self.found: dict[Kind, dict[str, Any]] = {}
        """What is known of a kind beside its times: seconds to plan and until its first step is done, memory, error."""

    def prepare(self, count: bool = True) -> None:
        """Make every kind of step, run it a few times and measure its memory. One that fails is told of in the end.
        ``count``: also what the floor is worked out from."""
        with timing.fast_device(self.how.cuda):
            memory.settle(self.how.cuda)
            self.base = memory.held(self.how.cuda)
            if any(kind.eager for kind in self.kinds):  # they are plain steps with something more
                self._attempt(PLAIN)
            for kind in self.kinds:
                once = replace(kind, every=1)
                if once not in self.found:
                    self._attempt(once)
                note = self.found[once].get("error") or f"{self.found[once]['first_s']:.1f} s"
                self.say(1, f"{kind.label}: {note}")
            if PLAIN not in self.found and any(kind.every > 1 for kind in self.kinds):
                self._attempt(PLAIN)  # compiled elsewhere by now, if anywhere
            try:
                self.flops = floor.flops(self.workload) if count else None
            except Exception as error:
                self.say(0, f"no floor: {describe(error)}")

    def own(self) -> dict[Kind, dict[str, Any]]:
        """What was found of the kinds that were asked for."""
        asked = {replace(kind, every=1) for kind in self.kinds}
        return {kind: about for kind, about in self.found.items() if kind in asked}

    def _attempt(self, kind: Kind) -> None:
        others = memory.held(self.how.cuda) - self.base
        began = time.perf_counter()
        try:
            self.losses[kind] = loss = self._patiently(lambda: self._loss(kind))
            made = time.perf_counter() - began
            step = self._step(loss)
            self._patiently(self._first(step))
            first = time.perf_counter() - began
            bytes_ = self._patiently(lambda: memory.peak(step, self.workload.clear, others, self.how.cuda))
            self.steps[kind], self.found[kind] = step, {"first_s": first, "memory": bytes_}
            if kind.way == "racecar":
                self.found[kind]["plan_s"] = made
        except LookupError as missing:
            self.found[kind] = {"error": str(missing), "missing": True}
        except Exception as error:
            self.found[kind] = {"error": describe(error)}
        self.workload.clear()
        if self.how.cuda:
            torch.cuda.empty_cache()  # others compile still

    def _patiently(self, work: Callable[[], T]) -> T:
        return memory.patiently(work, self.workload.clear, self.patience)

    def _loss(self, kind: Kind) -> Callable[[], Tensor]:
        if kind.eager:
            plain, model = self.losses[PLAIN], self.workload.model
            return lambda: plain() + srip_as_published(model)
        loss = loss_function(kind, self.workload)
        if not self.how.compile:
            return loss
        options: dict[str, Any] | None = {"combo_kernels": True} if self.how.combine else None
        return torch.compile(loss, fullgraph=True, options=options)

    def _step(self, loss: Callable[[], Tensor]) -> timing.Call:
        clear = self.workload.clear

        def step() -> None:
            clear()
            loss().backward()

        return step

    def _first(self, step: timing.Call) -> timing.Call:
        """Twice: something may be made in the second step still."""

        def first() -> None:
            for _ in range(2):
                step()
            if self.how.cuda:
                torch.cuda.synchronize()

        return first

    def bursts(self) -> dict[str, timing.Burst]:
        """By label. Where whole steps are CUDA graphs, they are captured here; what cannot be is told of in the end."""
        with timing.fast_device(self.how.cuda):
            for kind, step in self.steps.items() if self.how.profile else ():
                self.found[kind] |= parts(step, self.how.cuda)
            calls = self._calls()
        return {label: self._on_a_fast_device(timing.burst_of(*made, self.how.cuda)) for label, made in calls.items()}

    def _on_a_fast_device(self, burst: timing.Burst) -> timing.Burst:
        def timed(length: int) -> float:
            with timing.fast_device(self.how.cuda):
                return burst(length)

        return timed

    def _calls(self) -> dict[str, tuple[timing.Call, int]]:
        """What to time, by label, and the steps in one call."""
        single: dict[Kind, timing.Call] = dict(self.steps)
        if self.how.graphs:
            self.workload.clear()
            torch.cuda.empty_cache()
            pool = torch.cuda.graph_pool_handle()
            for kind, step in self.steps.items():
                if not kind.eager:
                    try:
                        single[kind] = timing.captured(step, self.workload.clear, pool)
                    except Exception as error:
                        del single[kind]
                        self.found[kind]["error"] = f"not captured: {describe(error)}"
        calls: dict[str, tuple[timing.Call, int]] = {}
        for kind in self.kinds:
            once = replace(kind, every=1)
            if once in single and (kind.every == 1 or PLAIN in single):
                call = single[once] if kind.every == 1 else now_and_then(single[once], single[PLAIN], kind.every)
                calls[kind.label] = call, kind.every
        return calls

    def close(self) -> None:
        """Give the memory back."""
        self.losses, self.steps = {}, {}
        if self.how.compile:
            torch._dynamo.reset()
        if self.how.cuda:
            torch.cuda.empty_cache()


def now_and_then(step: timing.Call, plain: timing.Call, every: int) -> timing.Call:
    """``every`` steps, of which one has the reverse pass."""

    def steps() -> None:
        step()
        for _ in range(every - 1):
            plain()

    return steps


def describe(error: BaseException) -> str:
    """An error in one line of moderate length: how it begins, and how it ends, where compilers say what it was."""
    line = " ".join(f"{type(error).__name__}: {error}".split())
    return line if len(line) <= 300 else f"{line[:118]} … {line[-180:]}"

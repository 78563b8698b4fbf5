"""All kinds of steps of one model: made, compiled, measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from racecar.bench import floor, memory, timing
from racecar.bench.models import Open
from racecar.bench.record import model_record
from racecar.bench.steps import PLAIN, Kind, loss_function, srip_as_published
from racecar.bench.subject import Circumstances, Subject

Say = Callable[[int, str], None]
"""(units of work that are done since the last call, what was done)."""


def units(kinds: Sequence[Kind], rounds: int) -> int:
    """Units of work of one model."""
    return len(kinds) + rounds


class Work:
    """One model. ``prepare`` compiles and may run beside others; ``measure`` wants the machine for itself."""

    def __init__(self, name: str, open_model: Open, how: Circumstances, kinds: Sequence[Kind], say: Say) -> None:
        self.how, self.kinds, self.say = how, kinds, say
        if how.cuda and (index := torch.device(how.device).index) is not None:
            torch.cuda.set_device(index)  # memory and events are those of the current device
        self.subject = Subject(name, *open_model(name), how)
        self.flops: tuple[int, int] | None = None
        self.losses: dict[Kind, Callable[[], Tensor]] = {}
        self.steps: dict[Kind, timing.Call] = {}
        self.found: dict[Kind, dict[str, Any]] = {}
        """What is known of a kind beside its times: seconds to plan and until its first step is done, memory, error."""

    def prepare(self) -> None:
        """Make every kind of step, run it a few times and measure its memory. One that fails is told of in the end."""
        with timing.fast_device(self.how.cuda):
            self.base = memory.held(self.how.cuda)
            for kind in self.kinds:
                once = replace(kind, every=1)
                if once not in self.found:
                    self._attempt(once)
                note = self.found[once].get("error") or f"{self.found[once]['first_s']:.1f} s"
                self.say(1, f"{kind.label}: {note}")
            try:
                self.flops = floor.flops(self.subject)
            except Exception as error:
                self.say(0, f"no floor: {describe(error)}")

    def _attempt(self, kind: Kind) -> None:
        others = memory.held(self.how.cuda) - self.base
        began = time.perf_counter()
        try:
            self.losses[kind] = loss = self._loss(kind)
            made = time.perf_counter() - began
            step = self._step(loss)
            step()
            self._wait()
            first = time.perf_counter() - began
            step()
            bytes_ = memory.peak(step, self.subject.clear, others, self.how.cuda)
            self.steps[kind], self.found[kind] = step, {"first_s": first, "memory": bytes_}
            if kind.way == "racecar":
                self.found[kind]["plan_s"] = made
        except LookupError as missing:
            self.found[kind] = {"error": str(missing), "missing": True}
        except Exception as error:
            self.found[kind] = {"error": describe(error)}
        self.subject.clear()

    def _loss(self, kind: Kind) -> Callable[[], Tensor]:
        if kind.eager:
            plain, model = self.losses[PLAIN], self.subject.model
            return lambda: plain() + srip_as_published(model)
        loss = loss_function(kind, self.subject)
        return torch.compile(loss, fullgraph=True) if self.how.compile else loss

    def _step(self, loss: Callable[[], Tensor]) -> timing.Call:
        clear = self.subject.clear

        def step() -> None:
            clear()
            loss().backward()

        return step

    def _wait(self) -> None:
        if self.how.cuda:
            torch.cuda.synchronize()

    def measure(self, rounds: int) -> dict[str, Any]:
        """The model's part of the record."""
        with timing.fast_device(self.how.cuda):
            calls = self._calls()
            burst, seconds = 1, {}
            if calls:
                first = PLAIN.label if PLAIN.label in calls else next(iter(calls))
                burst = timing.burst_length(calls[first][0], self.how.cuda)
                seconds = timing.interleaved(
                    calls, rounds, burst, self.how.cuda, lambda i: self.say(1, f"round {i} of {rounds}")
                )
            else:
                self.say(rounds, "nothing to measure")
        return model_record(self.subject, self.kinds, self.found, self.flops, burst, seconds)

    def _calls(self) -> dict[str, tuple[timing.Call, int]]:
        """What to time, by label, and the steps in one call."""
        single: dict[Kind, timing.Call] = dict(self.steps)
        if self.how.graphs:
            self.subject.clear()
            torch.cuda.empty_cache()
            pool = torch.cuda.graph_pool_handle()
            for kind, step in self.steps.items():
                if not kind.eager:
                    try:
                        single[kind] = timing.captured(step, self.subject.clear, pool)
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
    """An error in one line of moderate length."""
    line = " ".join(f"{type(error).__name__}: {error}".split())
    return line if len(line) <= 300 else line[:298] + " …"

"""Makes, compiles and times the training steps of one model: the plain one and those with a regulariser."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from racecar.bench import floor, kernels, memory, timing
from racecar.bench.kinds import PLAIN, Kind, Loss, ReverseKind
from racecar.bench.timing import Burst, Step
from racecar.bench.workload import OpenModel, StepOptions, Workload

Details = dict[str, Any]
"""Results of a kind of step other than its times: memory, seconds until the first step is done, kernels, an error."""
Say = Callable[[int, str], None]
"""Progress report: called with the units of work done since the last call, and a line of text about them."""


class Measurement:
    """Training steps of one model, one for each kind: `prepare` makes them, `bursts` returns functions that time them.
    Call both inside `timing.fast_device`."""

    def __init__(self, name: str, open_model: OpenModel, options: StepOptions, kinds: Sequence[Kind]) -> None:
        self.options, self.kinds = options, kinds
        if options.cuda and (index := torch.device(options.device).index) is not None:
            torch.cuda.set_device(index)  # memory and events are those of the current device
        self.workload = Workload(name, *open_model(name), options)
        self._allocated = 0
        """Bytes on the device before the first step was made: the model and its inputs."""
        self.flops: tuple[int, int] | None = None
        """Result of `floor.flops`: operations per sample, plain and with the whole reverse pass; None: not counted."""
        self.steps: dict[Kind, Step] = {}
        self.details: dict[Kind, Details] = {}

    def prepare(self, say: Say) -> None:
        """Make every kind of step, run it twice and measure its memory. One that fails leaves an error in `details`."""
        if self.options.cuda:
            memory.warm_up()
            self._allocated = memory.allocated()
        for kind in dict.fromkeys(kind.once() for kind in self.kinds):
            if kind.applies_to(self.workload):
                self._attempt(kind)
                details = self.details[kind]
                say(1, f"{kind.label}: {details.get('error') or '{first_s:.1f} s'.format(**details)}")
            else:
                say(1, f"{kind.label}: none for this model")
        if PLAIN not in self.details and any(kind.every > 1 for kind in self.kinds):
            self._attempt(PLAIN)
        if PLAIN in self.kinds:
            try:
                self.flops = floor.flops(self.workload)
            except Exception as error:
                say(0, f"no floor: {describe(error)}")

    def _attempt(self, kind: Kind) -> None:
        try:
            self.steps[kind], self.details[kind] = self.make(kind)
        except Exception as error:
            self.details[kind] = {"error": describe(error)}
        self.workload.clear_gradients()
        if self.options.cuda:
            torch.cuda.empty_cache()

    def make(self, kind: Kind) -> tuple[Step, Details]:
        """The training step of a kind, and its memory and time to the first result. The step was run twice, because
        torch.compile may still compile in the second run."""
        workload, cuda = self.workload, self.options.cuda
        other_steps = memory.allocated() - self._allocated if cuda else 0
        began = time.perf_counter()
        loss = kind.loss(workload)
        planned = time.perf_counter()
        loss = kind.finish(self._compiled(loss) if self.options.compile else loss, workload)

        def step() -> None:
            workload.clear_gradients()
            loss().backward()

        for _ in range(2):
            step()
        if cuda:
            torch.cuda.synchronize()
        details: Details = {"first_s": time.perf_counter() - began, "memory": None}
        if isinstance(kind, ReverseKind):
            details["plan_s"] = planned - began
        if cuda:
            details["memory"] = memory.peak(step, workload.clear_gradients) - other_steps
        return step, details

    def _compiled(self, loss: Loss) -> Loss:
        options: dict[str, Any] | None = {"combo_kernels": True} if self.options.combine else None
        return torch.compile(loss, fullgraph=True, options=options)

    def bursts(self) -> dict[str, Burst]:
        """A function for each kind of step, under the label of the kind, that runs and times a number of such steps.

        Before that, where the options ask for it, the steps are profiled and captured as CUDA graphs.
        """
        cuda = self.options.cuda
        if self.options.profile:
            for kind, step in self.steps.items():
                self.details[kind] |= kernels.profile(step, cuda)
        steps = self._captured() if self.options.graphs else self.steps
        calls: dict[str, tuple[Step, int]] = {}
        for kind in self.kinds:
            once, plain = steps.get(kind.once()), steps.get(PLAIN)
            if once is not None and kind.every == 1:
                calls[kind.label] = once, 1
            elif once is not None and plain is not None:
                calls[kind.label] = one_then_plain(once, plain, kind.every), kind.every
        return {label: timing.burst_of(call, steps, cuda) for label, (call, steps) in calls.items()}

    def _captured(self) -> dict[Kind, Step]:
        """The steps as CUDA graphs; one that cannot be captured leaves an error in `details`."""
        self.workload.clear_gradients()
        torch.cuda.empty_cache()
        pool, steps = torch.cuda.graph_pool_handle(), dict(self.steps)
        for kind, step in self.steps.items():
            if kind.capturable:
                try:
                    steps[kind] = timing.captured(step, self.workload.clear_gradients, pool)
                except Exception as error:
                    del steps[kind]
                    self.details[kind]["error"] = f"not captured: {describe(error)}"
        return steps

    def close(self) -> None:
        """Free the memory of all steps."""
        self.steps.clear()
        if self.options.compile:
            torch.compiler.reset()
        if self.options.cuda:
            torch.cuda.empty_cache()


def one_then_plain(step: Step, plain: Step, every: int) -> Step:
    """``every`` steps, of which the first has the regulariser."""

    def steps() -> None:
        step()
        for _ in range(every - 1):
            plain()

    return steps


def describe(error: BaseException) -> str:
    """An error in one line of at most 300 characters: its beginning, and its end, where compilers say what it was."""
    line = " ".join(f"{type(error).__name__}: {error}".split())
    return line if len(line) <= 300 else f"{line[:118]} … {line[-180:]}"

"""Nets of one method on their streams: one task after another, measured on the way, to be interrupted at any pass."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from racecar_lab.experiment import Measured, Task
from racecar_lab.experiments.streams.config import StreamsConfig
from racecar_lab.experiments.streams.drawing import Stream, StreamTask
from racecar_lab.streams import DESIGNS, Method, MethodSetting, StreamStack
from racecar_lab.training.curves import short

LOOKS = 10
"""Tasks after which is looked at the nets' units and weights, the last one among them."""
LOOKED_AT = 256
"""Samples for that, at most."""
AT_ONCE = 250
"""Test pictures of each net."""


class Learning:
    """E nets of one method.

    Args:
        config: the same for all nets, but for learning rate and second number.
        pool: the pictures from which tasks are drawn.
        seeds, settings: one for each net.
    """

    def __init__(
        self,
        config: StreamsConfig,
        method: Method,
        pool: Task,
        seeds: Sequence[int],
        settings: Sequence[MethodSetting],
        device: str = "cpu",
    ) -> None:
        self.config, self.method = config, method
        self.stream = Stream(config, pool, seeds, device)
        shape, classes = pool.train.x.shape[1:], config.protocol.classes
        self.nets = StreamStack(
            method, DESIGNS[config.net], shape, classes, seeds, settings, optimiser=config.optimiser, device=device
        )
        self.per_pass = self.stream.samples // config.size_of_batch
        self.total, self.done = self.per_pass * config.repeats * config.length, 0
        self.looks = sorted({round((i + 1) * config.length / LOOKS) - 1 for i in range(LOOKS)} - {-1})
        count = len(seeds)
        self.right = torch.zeros(count, device=device)
        self.kept = {name: torch.zeros(config.length, count, device=device) for name in ("online", "test")}
        self.seen: dict[str, list[Tensor]] = {}
        self.seconds, self.timed = 0.0, 0
        self._task: tuple[int, StreamTask, StreamTask | None] | None = None
        self._warm = False

    @property
    def over(self) -> bool:
        return self.done >= self.total

    def advance(self) -> None:
        """One pass over the samples of a task; after the last one it is measured."""
        number, repeat = divmod(self.done // self.per_pass, self.config.repeats)
        if repeat == 0:
            self.nets.new_task(self.config.protocol.zero_head)
            self.right.zero_()
        task, before = self._tasks(number)
        order, began = self.stream.order(number, repeat), time.perf_counter()
        for at in order:
            self.right += self.nets.step(*task.batch(at), None if before is None else before.batch(at)[0])[:, 1]
        if self.right.is_cuda:
            torch.cuda.synchronize(self.right.device)
        if self._warm:  # the first pass of a process has what is done once
            self.seconds, self.timed = self.seconds + time.perf_counter() - began, self.timed + self.per_pass
        self._warm = True
        self.done += self.per_pass
        if repeat == self.config.repeats - 1:
            self._measure(number, task)

    def _tasks(self, number: int) -> tuple[StreamTask, StreamTask | None]:
        """A task, and for methods that look at an earlier one that."""
        if self._task is None or self._task[0] != number:
            needed = self.method.along == "earlier" and number > 0
            self._task = number, self.stream.task(number), self.stream.task(number - 1) if needed else None
        return self._task[1:]

    def _measure(self, number: int, task: StreamTask) -> None:
        self.kept["online"][number] = self.right / (self.per_pass * self.config.repeats)
        if count := task.drawn.tests.shape[1]:
            parts = [task.test(slice(i, i + AT_ONCE)) for i in range(0, count, AT_ONCE)]
            right = sum((self.nets.outputs(x).argmax(2) == y).sum(1) for x, y in parts)
            self.kept["test"][number] = right / count
        if number in self.looks:
            some = torch.arange(min(LOOKED_AT, self.stream.samples), device=self.stream.device)
            x, _ = task.batch(some.expand(len(self.stream.seeds), -1))
            for name, values in self.nets.metrics(x).items():
                self.seen.setdefault(name, []).append(values)

    def state_dict(self) -> dict[str, Any]:
        """All that a checkpoint needs."""
        names = ("done", "right", "kept", "seen", "seconds", "timed")
        return {"nets": self.nets.state_dict(), **{name: getattr(self, name) for name in names}}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        """Go on from there."""
        self.nets.load_state_dict(kept["nets"])
        self.right.copy_(kept["right"])
        for name, values in self.kept.items():
            values.copy_(kept["kept"][name])
        self.seen = {name: [one.to(self.right.device) for one in some] for name, some in kept["seen"].items()}
        self.done, self.seconds, self.timed = kept["done"], kept["seconds"], kept["timed"]

    @property
    def step_s(self) -> float:
        """Seconds for a step of all nets; 0 where there was no second pass to time."""
        return self.seconds / self.timed if self.timed else 0.0

    def finite(self) -> list[bool]:
        """Whether the weights of each net are finite at the end."""
        each = [one.flatten(1).isfinite().all(1) for one in self.nets.state["parameters"].values()]
        return torch.stack(each).all(0).tolist()

    def measured(self, arrays: bool) -> list[Measured]:
        """What is kept of each net.

        Args:
            arrays: keep what figures show, too: accuracies by task.
        """
        half, name = self.config.length // 2, "valid" if self.config.valid else "test"
        kept = {"online": self.kept["online"].cpu()}
        if self.config.protocol.tested:
            kept[name] = self.kept["test"].cpu()
        metrics: dict[str, Tensor] = {}
        for what, values in kept.items():
            metrics |= {f"{what}_accuracy": values[half:].mean(0), f"first_{what}_accuracy": values[0]}
        metrics |= {what: some[-1].cpu() for what, some in self.seen.items()}
        seen = {what: torch.stack(some).cpu() for what, some in self.seen.items()}
        return [
            Measured(
                {what: short(float(values[i])) for what, values in metrics.items()},
                arrays={what: values[:, i].clone() for what, values in {**kept, **seen}.items()} if arrays else {},
            )
            for i in range(len(self.right))
        ]

"""Training and measuring the nets of one method on their streams; it can be interrupted after any pass."""

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
"""Largest number of tasks after which units and weights are measured; they are evenly spaced and end with the last
task."""
UNIT_SAMPLES = 256
"""Largest number of training samples on which the units of a net are measured, such as the share of dead ones."""
AT_ONCE = 250
"""Number of test pictures of each net that are classified at once."""


class Learning:
    """The training of E nets by one method, each on the stream of its seed, and what was measured so far.

    Args:
        config: the configuration of all nets; learning rate and second number are taken from ``settings`` instead.
        method: how the nets are trained.
        pool: the pictures from which tasks are drawn.
        seeds: a seed for each net.
        settings: a setting for each net.
        device: where the nets are trained.
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
        """Numbers, from 0, of the tasks after which units and weights are measured."""
        count = len(seeds)
        self.right = torch.zeros(count, device=device)
        """Accuracy of each net on its batch, summed over the steps of the present task, (E,)."""
        self.accuracies = {name: torch.zeros(config.length, count, device=device) for name in ("online", "test")}
        """Accuracy on every task, (tasks, E): "online", while learning it, and "test", on its test pictures."""
        self.measures: dict[str, list[Tensor]] = {}
        """Name of a measure of units or weights → its values (E,) after each of the tasks ``looks``."""
        self.seconds, self.timed = 0.0, 0
        """Seconds that were spent on steps that were timed, and the number of these steps."""
        self._task: tuple[int, StreamTask, StreamTask | None] | None = None
        self._warm = False

    @property
    def over(self) -> bool:
        """True when all steps of the training are done."""
        return self.done >= self.total

    def advance(self) -> None:
        """Train on one pass over the samples of a task; after the task's last pass, measure the nets."""
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
        if self._warm:  # the first pass of a process also compiles and records, and is not timed
            self.seconds, self.timed = self.seconds + time.perf_counter() - began, self.timed + self.per_pass
        self._warm = True
        self.done += self.per_pass
        if repeat == self.config.repeats - 1:
            self._measure(number, task)

    def _tasks(self, number: int) -> tuple[StreamTask, StreamTask | None]:
        """The task with this number, and the one before, if the method's penalty takes its h, inputs of layers, from an
        earlier task; else None."""
        if self._task is None or self._task[0] != number:
            needed = self.method.h_from == "earlier" and number > 0
            self._task = number, self.stream.task(number), self.stream.task(number - 1) if needed else None
        return self._task[1:]

    def _measure(self, number: int, task: StreamTask) -> None:
        """Measure the nets after a task: accuracies, and for the tasks ``looks`` units and weights."""
        self.accuracies["online"][number] = self.right / (self.per_pass * self.config.repeats)
        if count := task.indices.tests.shape[1]:
            parts = [task.test(slice(i, i + AT_ONCE)) for i in range(0, count, AT_ONCE)]
            right = sum((self.nets.outputs(x).argmax(2) == y).sum(1) for x, y in parts)
            self.accuracies["test"][number] = right / count
        if number in self.looks:
            first = torch.arange(min(UNIT_SAMPLES, self.stream.samples), device=self.stream.device)
            x, _ = task.batch(first.expand(len(self.stream.seeds), -1))
            for name, values in self.nets.metrics(x).items():
                self.measures.setdefault(name, []).append(values)

    def state_dict(self) -> dict[str, Any]:
        """State of the training for a checkpoint: the nets, and what was measured so far."""
        return {
            "nets": self.nets.state_dict(),
            "done": self.done,
            "right": self.right,
            "kept": self.accuracies,
            "seen": self.measures,
            "seconds": self.seconds,
            "timed": self.timed,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restore nets and measurements from a checkpoint, to continue the training."""
        self.nets.load_state_dict(saved["nets"])
        self.right.copy_(saved["right"])
        for name, values in self.accuracies.items():
            values.copy_(saved["kept"][name])
        device = self.right.device
        self.measures = {name: [values.to(device) for values in looks] for name, looks in saved["seen"].items()}
        self.done, self.seconds, self.timed = saved["done"], saved["seconds"], saved["timed"]

    @property
    def step_s(self) -> float:
        """Mean time in seconds of a training step of all nets together; 0 if there was only one pass, as the first one
        is not timed."""
        return self.seconds / self.timed if self.timed else 0.0

    def finite(self) -> list[bool]:
        """For each net, True if all its weights are finite."""
        finite = [values.flatten(1).isfinite().all(1) for values in self.nets.state["parameters"].values()]
        return torch.stack(finite).all(0).tolist()

    def measured(self, arrays: bool) -> list[Measured]:
        """The metrics and arrays of each net for its record, after the training.

        Metrics are accuracies over the second half of the tasks ("online_accuracy", …) and on the first task
        ("first_online_accuracy", …), and the last measures of units and weights.

        Args:
            arrays: add the arrays that figures show: accuracies by task, and all measures of units and weights.
        """
        half, name = self.config.length // 2, "valid" if self.config.valid else "test"
        accuracies = {"online": self.accuracies["online"].cpu()}
        if self.config.protocol.tested:
            accuracies[name] = self.accuracies["test"].cpu()
        metrics: dict[str, Tensor] = {}
        for what, values in accuracies.items():
            metrics |= {f"{what}_accuracy": values[half:].mean(0), f"first_{what}_accuracy": values[0]}
        measures = {what: torch.stack(looks).cpu() for what, looks in self.measures.items()}
        metrics |= {what: looks[-1] for what, looks in measures.items()}
        return [
            Measured(
                {what: short(float(values[i])) for what, values in metrics.items()},
                arrays={what: values[:, i].clone() for what, values in {**accuracies, **measures}.items()}
                if arrays
                else {},
            )
            for i in range(len(self.right))
        ]

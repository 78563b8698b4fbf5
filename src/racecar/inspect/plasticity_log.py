"""Measure plasticity repeatedly during a training."""

from __future__ import annotations

from typing import Any

from torch import nn

from racecar.every import check_every
from racecar.inspect.plasticity import Plasticity, plasticity
from racecar.watch.batches import ExampleInputs


class PlasticityLog:
    """Measures a net's plasticity every so many training steps and keeps the results; prints the latest as a table.

        log = PlasticityLog(model, x, every=500)
        for … in batches:
            …  # a training step
            log.step()
        print(log)
        racecar.inspect.figures.plasticity_figure(log.history)

    Args:
        model, inputs: as for :func:`plasticity`; a few dozen samples that stay the same.
        every: training steps between two measurements; one costs about two forward passes and small eigenvalue
            problems.
        logger: one with ``log_metrics(metrics, step)``, as Lightning's loggers have, or a TensorBoard writer: gets
            "plasticity/dead/LAYER" and so on. None: nothing is logged.
    """

    def __init__(self, model: nn.Module, inputs: ExampleInputs, *, every: int = 500, logger: Any = None) -> None:
        self.model, self.inputs, self.every, self.logger, self.steps = model, inputs, check_every(every), logger, 0
        self.history: list[tuple[int, Plasticity]] = []
        """(training step, measurement at that step), beginning with the start of the training at step 0."""
        self.look()

    def step(self) -> None:
        """Count a training step, and measure if it is due; call it after each training step."""
        self.steps += 1
        if self.steps % self.every == 0:
            self.look()

    def look(self) -> Plasticity:
        """Measure now, whatever the step; the result is kept in ``history``, logged and returned."""
        now = plasticity(self.model, self.inputs, start=self.history[0][1] if self.history else None)
        self.history.append((self.steps, now))
        if self.logger is not None:
            scalars = now.scalars()
            if hasattr(self.logger, "log_metrics"):
                self.logger.log_metrics(scalars, self.steps)
            else:
                for name, value in scalars.items():
                    self.logger.add_scalar(name, value, self.steps)
        return now

    def __str__(self) -> str:
        return str(self.history[-1][1])

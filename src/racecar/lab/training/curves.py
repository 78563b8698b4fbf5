"""What happens over a training, at some hundred points of it."""

from __future__ import annotations

import math
import time
from statistics import median
from typing import Any

import torch
from torch import Tensor

from racecar.lab.training import distributed

POINTS = 100
"""At most so many points on a curve."""


def short(value: float) -> float:
    """Six digits, which is more than a curve can show."""
    return float(f"{value:.6g}")


class Diverged(FloatingPointError):
    """The loss is not finite any more."""


class Curves:
    """Means of the losses between points; reads the device only there."""

    def __init__(self, epochs: int) -> None:
        self.every = max(1, math.ceil(epochs / POINTS))
        self.epochs = epochs
        self.points: dict[str, list[float]] = {}
        self._paces: list[float] = []
        self._spent = 0.0
        self._sums: Tensor | None = None
        self._count = 0
        self._began = time.perf_counter()

    def add(self, losses: Tensor) -> None:
        """The two losses of a step, (2,): of the task, and the regulariser."""
        self._sums = losses if self._sums is None else self._sums + losses
        self._count += 1

    def due(self, epoch: int) -> bool:
        """Whether this epoch (from 0) ends with a point."""
        return (epoch + 1) % self.every == 0 or epoch + 1 == self.epochs

    def point(self, epoch: int) -> tuple[float, float]:
        """Read the means since the last point, of all processes; raises Diverged where they are not finite."""
        assert self._sums is not None
        task, regulariser = distributed.mean(self._sums / self._count).tolist()
        self.pause()
        self._paces.append(self._spent / self._count)
        self._spent = 0.0
        if not (math.isfinite(task) and math.isfinite(regulariser)):
            raise Diverged(f"the loss was not finite any more in epoch {epoch + 1}")
        for name, value in (("epoch", epoch + 1), ("train_loss", task), ("regulariser", regulariser)):
            self.points.setdefault(name, []).append(short(value))
        self._sums, self._count = None, 0
        return task, regulariser

    def note(self, name: str, value: float) -> None:
        """One more number at the last point."""
        self.points.setdefault(name, []).append(short(value))

    def go(self) -> None:
        """The clock runs: steps follow."""
        self._began = time.perf_counter()

    def pause(self) -> None:
        """The clock stands still: what follows is no step of the training."""
        self._spent += time.perf_counter() - self._began
        self._began = time.perf_counter()

    @property
    def step_s(self) -> float:
        """Seconds for a step: the median of the points, so that what happens once, as a compilation, does not count."""
        return median(self._paces) if self._paces else 0.0

    def state(self) -> dict[str, Any]:
        clock = {"paces": self._paces, "spent": self._spent}
        return {"points": self.points, "sums": self._sums, "count": self._count, **clock}

    def load(self, state: dict[str, Any], device: torch.device) -> None:
        self.points, self._paces, self._spent = state["points"], state["paces"], state["spent"]
        self._sums = None if state["sums"] is None else state["sums"].to(device)
        self._count = state["count"]

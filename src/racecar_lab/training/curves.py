"""Learning curves: losses and other numbers at about a hundred points of a training, and the time of a step."""

from __future__ import annotations

import math
import time
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from racecar_lab.training import distributed

POINTS = 100
"""Maximal number of points on a learning curve."""


def short(value: float) -> float:
    """A number rounded to six significant digits."""
    return float(f"{value:.6g}")


class Diverged(FloatingPointError):
    """The error of a training that diverged: its loss or its weights are no longer finite."""


class Curves:
    """The learning curves of one net, or of several that are trained at once; they also time the steps.

    A point on a curve of losses is the mean over the steps since the point before. Losses are read from the device only
    at the points, so that steps do not wait for it.

    Args:
        epochs: number of epochs of the training.
        nets: number of nets.
    """

    def __init__(self, epochs: int, nets: int = 1) -> None:
        self.every = max(1, math.ceil(epochs / POINTS))
        self.epochs = epochs
        self.points: list[dict[str, list[float]]] = [{} for _ in range(nets)]
        self.notes = [""] * nets
        """For each net, the reason why it diverged; empty if it did not."""
        self._step_times: list[float] = []
        self._seconds = 0.0
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._started = time.perf_counter()

    def add(self, losses: Tensor, turn: str = "") -> None:
        """Add the losses of a step to the sums from which the next point is computed.

        Args:
            losses: the task's loss and the regulariser, (2,) or (nets, 2).
            turn: name of the network that the step trained; empty if there is only one.
        """
        self._sums[turn] = self._sums[turn] + losses if turn in self._sums else losses
        self._counts[turn] = self._counts.get(turn, 0) + 1

    def due(self, epoch: int) -> bool:
        """True if the curves get a point after this epoch, counted from 0."""
        return (epoch + 1) % self.every == 0 or epoch + 1 == self.epochs

    def point(self, epoch: int) -> None:
        """Add a point to the curves after an epoch: the means of the losses since the last point, over steps and
        processes. A net with a loss that is not finite is noted as diverged."""
        tensors = {turn: distributed.mean(sums / self._counts[turn]) for turn, sums in self._sums.items()}
        means = {turn: tensor.view(-1, 2).tolist() for turn, tensor in tensors.items()}
        self.stop_clock()
        self._step_times.append(self._seconds / sum(self._counts.values()))
        self._seconds, self._sums, self._counts = 0.0, {}, {}
        for i in range(len(self.points)):
            self.add_number(i, "epoch", epoch + 1)
            for turn, pairs in means.items():
                for name, value in zip(_names(turn), pairs[i], strict=True):
                    self.add_number(i, name, value)
                if not all(map(math.isfinite, pairs[i])):
                    self.diverged(i, f"the loss was not finite any more in epoch {epoch + 1}")

    def add_number(self, i: int, name: str, value: float) -> None:
        """Add a number of net i, such as its accuracy, to the last point, for the curve ``name``."""
        self.points[i].setdefault(name, []).append(short(value))

    def diverged(self, i: int, reason: str) -> None:
        """Note that net i diverged, and why; if it is noted already, the first reason is kept."""
        self.notes[i] = self.notes[i] or reason

    def summary(self) -> str:
        """The losses of the last point as text; of several nets, the means over those that did not diverge."""
        last = [{name: values[-1] for name, values in point.items()} for point in self.points]
        last = [point for point, note in zip(last, self.notes, strict=True) if not note]
        skipped, words = ("epoch", "valid_accuracy"), {"train_loss": "loss"}
        means = {name: fmean(point[name] for point in last) for name in last[0] if name not in skipped}
        text = ", ".join(f"{words.get(name, name.replace('_', ' '))} {value:.4g}" for name, value in means.items())
        return text if len(self.points) == 1 else f"mean {text}"

    def start_clock(self) -> None:
        """Start to time training steps; called before them, after work that does not count, such as saving."""
        self._started = time.perf_counter()

    def stop_clock(self) -> None:
        """Add the seconds since the clock was started to the time of the training steps; called before work that does
        not count, such as saving."""
        self._seconds += time.perf_counter() - self._started
        self._started = time.perf_counter()

    @property
    def step_s(self) -> float:
        """Number of seconds that a training step takes: the median over the points, which leaves out one-time costs
        such as a compilation."""
        return median(self._step_times) if self._step_times else 0.0

    def state(self) -> dict[str, Any]:
        """The points, sums and times so far, for a checkpoint."""
        clock = {"step_times": self._step_times, "seconds": self._seconds}
        return {"points": self.points, "notes": self.notes, "sums": self._sums, "counts": self._counts, **clock}

    def load(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue with the points, sums and times of a checkpoint, as ``state`` returned them."""
        self.points, self.notes, self._counts = state["points"], state["notes"], state["counts"]
        self._step_times, self._seconds = state["step_times"], state["seconds"]
        self._sums = {turn: sums.to(device) for turn, sums in state["sums"].items()}


def _names(turn: str) -> tuple[str, str]:
    """Names of the two curves of a network, of the task's loss and of the regulariser; ``turn`` is the network's name,
    empty if there is only one."""
    return (f"{turn}_loss", f"{turn}_regulariser") if turn else ("train_loss", "regulariser")

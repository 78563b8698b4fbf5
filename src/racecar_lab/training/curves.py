"""What happens over a training, at some hundred points of it."""

from __future__ import annotations

import math
import time
from statistics import fmean, median
from typing import Any

import torch
from torch import Tensor

from racecar_lab.training import distributed

POINTS = 100
"""At most so many points on a curve."""


def short(value: float) -> float:
    """Six digits, which is more than a curve can show."""
    return float(f"{value:.6g}")


class Diverged(FloatingPointError):
    """The loss is not finite any more."""


class Curves:
    """Means of the losses between points; reads the device only there.

    Args:
        nets: how many have curves.
    """

    def __init__(self, epochs: int, nets: int = 1) -> None:
        self.every = max(1, math.ceil(epochs / POINTS))
        self.epochs = epochs
        self.points: list[dict[str, list[float]]] = [{} for _ in range(nets)]
        self.notes = [""] * nets
        """Why a net diverged, if it did."""
        self._paces: list[float] = []
        self._spent = 0.0
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._began = time.perf_counter()

    def add(self, losses: Tensor, turn: str = "") -> None:
        """The two losses of a step, (2,) or (nets, 2): of the task, and the regulariser; ``turn`` names the network."""
        self._sums[turn] = self._sums[turn] + losses if turn in self._sums else losses
        self._counts[turn] = self._counts.get(turn, 0) + 1

    def due(self, epoch: int) -> bool:
        """Whether this epoch (from 0) ends with a point."""
        return (epoch + 1) % self.every == 0 or epoch + 1 == self.epochs

    def point(self, epoch: int) -> None:
        """Read the means since the last point, of all processes."""
        read = {turn: distributed.mean(sums / self._counts[turn]) for turn, sums in self._sums.items()}
        means = {turn: mean.view(-1, 2).tolist() for turn, mean in read.items()}
        self.pause()
        self._paces.append(self._spent / sum(self._counts.values()))
        self._spent, self._sums, self._counts = 0.0, {}, {}
        for i in range(len(self.points)):
            self.note(i, "epoch", epoch + 1)
            for turn, pairs in means.items():
                for name, value in zip(_names(turn), pairs[i], strict=True):
                    self.note(i, name, value)
                if not all(map(math.isfinite, pairs[i])):
                    self.diverged(i, f"the loss was not finite any more in epoch {epoch + 1}")

    def note(self, i: int, name: str, value: float) -> None:
        """One more number of net i at the last point."""
        self.points[i].setdefault(name, []).append(short(value))

    def diverged(self, i: int, why: str) -> None:
        """Net i has; the first reason stays."""
        self.notes[i] = self.notes[i] or why

    def said(self) -> str:
        """The losses of the last point, of many nets the mean over those that are finite."""
        last = [{name: some[-1] for name, some in one.items()} for one in self.points]
        last = [one for one, note in zip(last, self.notes, strict=True) if not note]
        skipped, words = ("epoch", "valid_accuracy"), {"train_loss": "loss"}
        means = {name: fmean(one[name] for one in last) for name in last[0] if name not in skipped}
        text = ", ".join(f"{words.get(name, name.replace('_', ' '))} {value:.4g}" for name, value in means.items())
        return text if len(self.points) == 1 else f"mean {text}"

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
        return {"points": self.points, "notes": self.notes, "sums": self._sums, "counts": self._counts, **clock}

    def load(self, state: dict[str, Any], device: torch.device) -> None:
        self.points, self.notes, self._counts = state["points"], state["notes"], state["counts"]
        self._paces, self._spent = state["paces"], state["spent"]
        self._sums = {turn: sums.to(device) for turn, sums in state["sums"].items()}


def _names(turn: str) -> tuple[str, str]:
    """Of the two curves of a network."""
    return (f"{turn}_loss", f"{turn}_regulariser") if turn else ("train_loss", "regulariser")

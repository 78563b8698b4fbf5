"""Schedules: coefficients of a regulariser that change with the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Schedule:
    """A piecewise constant coefficient: each step's value holds from its epoch until the next step's.

    Args:
        steps: (first epoch, value) pairs; epochs are counted from 0 and increase.
    """

    steps: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        epochs = [epoch for epoch, _ in self.steps]
        if epochs[:1] != [0] or any(a >= b for a, b in pairwise(epochs)):
            raise ValueError(f"the epochs of a schedule start at 0 and grow; these are {epochs}")

    def at(self, epoch: int) -> float:
        """The coefficient in an epoch, counted from 0."""
        if epoch < 0:
            raise ValueError(f"epochs count from 0; there is no epoch {epoch}")
        return next(value for first, value in reversed(self.steps) if first <= epoch)


BANSAL = Schedule(((0, 1e-2), (20, 1e-3), (50, 1e-4), (70, 1e-6), (120, 0.0)))
"""The schedule of SRIP's coefficient that Bansal et al. (2018) print."""

BANSAL_CODE = Schedule(((0, 1e-2), (20, 1e-5), (50, 1e-6), (70, 1e-8), (120, 0.0)))
"""The schedule of SRIP's coefficient in their published code, where 1e-3, 1e-4 and 1e-6 multiply the first value."""

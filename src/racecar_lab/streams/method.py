"""What a method consists of, and the settings that are tried with it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

from racecar_lab.streams.nets import Activation, Norm

LEARNING_RATES = {"adam": (1e-4, 3e-4, 1e-3, 3e-3), "sgd": (3e-3, 1e-2, 3e-2, 1e-1)}
"""By optimiser, for methods with a strength."""
SPAN = {"adam": (-4.5, -2.0), "sgd": (-3.0, -0.5)}
"""Powers of ten between which methods without a strength have their learning rates: as many settings as the others."""
SETTINGS = 20
"""Of every method."""


class MethodSetting(NamedTuple):
    """One of the settings of a method."""

    lr: float
    strength: float = 0.0
    second: float = 0.0
    """What else a method is told: see ``Method.second_is``."""


@dataclass(frozen=True)
class Method:
    """One way of training a net on one task after another; by default plain training."""

    name: str
    about: str = ""
    """What it is, for a table."""
    activation: Activation = "relu"
    norm: Norm = "none"
    penalty: str = ""
    """One of ``PENALTIES``, or empty."""
    how: Literal["loss", "ratio", "decoupled"] = "loss"
    """What becomes of the penalty's gradient: times the strength it is added to the task's; or times a factor with
    which its norm is "strength" times that of the task's gradient, measured every ``MEASURED`` steps; or times learning
    rate and strength it is a step of its own after the optimiser's."""
    along: Literal["data", "random", "earlier"] = "data"
    """For ``linear``: h is the layers' own input, normal random numbers, or the layers' input for earlier samples."""
    fraction: float = 1.0
    """The share of the batch, from its start, from which ``linear`` takes h."""
    reverse: Literal["", "full", "layerwise"] = ""
    """The mode of the paper's reverse loss, times the strength, or empty."""
    change: Literal["", "shrink-and-perturb", "redo", "continual-backprop", "reset"] = ""
    """What happens to the parameters after a step, or, with "reset", between tasks."""
    strengths: tuple[tuple[float, float], ...] = ()
    """Strength and second number of each setting; empty for methods without."""
    second_is: str = ""
    """What the second number of a setting is, where there is one."""

    def __post_init__(self) -> None:
        if self.activation == "crelu" and self.change in ("redo", "continual-backprop"):
            raise ValueError(
                f"{self.change} replaces units that have one activation each: use it with activation='relu'"
            )
        if self.reverse and (self.penalty or self.how != "loss"):
            raise ValueError("the reverse loss is added to the task's loss as it is: use it without penalty and how")

    def settings(self, optimiser: str) -> tuple[MethodSetting, ...]:
        """All that are tried with "adam" or "sgd": ``SETTINGS`` for every method of the table."""
        if self.strengths:
            return tuple(MethodSetting(lr, *one) for lr, one in product(LEARNING_RATES[optimiser], self.strengths))
        low, high = SPAN[optimiser]
        return tuple(MethodSetting(10 ** (low + (high - low) * i / (SETTINGS - 1))) for i in range(SETTINGS))

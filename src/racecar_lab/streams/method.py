"""The definition of a training method, and the settings that a search tries with it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

from racecar_lab.streams.nets import Activation, Norm

LEARNING_RATES = {"adam": (1e-4, 3e-4, 1e-3, 3e-3), "sgd": (3e-3, 1e-2, 3e-2, 1e-1)}
"""Learning rates that a search tries with each optimiser, for methods with a weight."""
SPAN = {"adam": (-4.5, -2.0), "sgd": (-3.0, -0.5)}
"""Powers of ten of the smallest and the largest learning rate that methods without a weight try. These try more
learning rates than others, so that all methods have equally many settings."""
SETTINGS = 20
"""Number of settings that a search tries with every method."""


class MethodSetting(NamedTuple):
    """The numbers with which one net is trained by a method."""

    lr: float
    """Learning rate."""
    weight: float = 0.0
    """The method's main number: the factor λ of a penalty; ReDo's threshold τ, the replacement rate ρ of continual
    backprop or the shrinkage p of Shrink & Perturb, which have no λ; 0 for methods without such a number."""
    second: float = 0.0
    """The method's second number, where it has one; ``Method.second_meaning`` says what it means."""


@dataclass(frozen=True)
class Method:
    """A way of training a net on one task after another; the default fields are plain training."""

    name: str
    about: str = ""
    """A short description of the method, for tables."""
    activation: Activation = "relu"
    norm: Norm = "none"
    penalty: str = ""
    """Name in ``PENALTIES`` of the penalty on the parameters; empty: none."""
    coupling: Literal["loss", "ratio", "decoupled"] = "loss"
    """The way in which the penalty's gradient changes the parameters. "loss": multiplied by the weight, it is added to
    the task's gradient. "ratio": it is added to the task's gradient after multiplication by a factor that makes its
    norm ``weight`` times that of the task's gradient; the factor is measured every ``MEASURED`` steps. "decoupled":
    multiplied by learning rate and weight, it is subtracted from the parameters after the optimiser's step."""
    h_from: Literal["data", "random", "earlier"] = "data"
    """The source of h, which the penalty ``linear`` is computed from: the layers' inputs for the batch, normal random
    numbers, or the layers' inputs for samples of an earlier task."""
    fraction: float = 1.0
    """Share of the batch, its first samples, from which the penalty ``linear`` takes h, the layers' inputs."""
    reverse: Literal["", "full", "layerwise"] = ""
    """Mode of the paper's reverse loss, which is added to the task's loss times the weight; empty: none."""
    change: Literal["", "shrink-and-perturb", "redo", "continual-backprop", "reset"] = ""
    """Name of the change that is made to the parameters besides the optimiser's: after each step, or, with "reset",
    before each task; empty: none."""
    weights: tuple[tuple[float, float], ...] = ()
    """Pairs (weight, second number) that a search tries; empty for methods without a weight."""
    second_meaning: str = ""
    """Meaning of the second number of the method's settings; empty if it has none."""

    def __post_init__(self) -> None:
        if self.activation == "crelu" and self.change in ("redo", "continual-backprop"):
            raise ValueError(
                f"{self.change} replaces units that have one activation each: use it with activation='relu'"
            )
        if self.reverse and (self.penalty or self.coupling != "loss"):
            raise ValueError(
                "the reverse loss is added to the task's loss as it is: use it without penalty and coupling"
            )

    def settings(self, optimiser: str) -> tuple[MethodSetting, ...]:
        """The settings that a search tries with optimiser "adam" or "sgd": ``SETTINGS`` for every method of
        ``METHODS``."""
        if self.weights:
            return tuple(MethodSetting(lr, *pair) for lr, pair in product(LEARNING_RATES[optimiser], self.weights))
        low, high = SPAN[optimiser]
        return tuple(MethodSetting(10 ** (low + (high - low) * i / (SETTINGS - 1))) for i in range(SETTINGS))

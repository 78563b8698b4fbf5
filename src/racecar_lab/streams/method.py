"""The definition of a training method, and the settings that a search tries with it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

from racecar_lab.streams.nets import Activation, Norm

LEARNING_RATES = {"adam": (1e-4, 3e-4, 1e-3, 3e-3), "sgd": (3e-3, 1e-2, 3e-2, 1e-1)}
"""Learning rates that are tried with each optimiser, for methods with a weight."""
SPAN = {"adam": (-4.5, -2.0), "sgd": (-3.0, -0.5)}
"""Smallest and largest learning rate, as powers of ten, of methods without a weight. These try more learning rates
than others, so that all methods have equally many settings."""
SETTINGS = 20
"""Number of settings that are tried with every method."""


class MethodSetting(NamedTuple):
    """The numbers with which one net is trained by a method."""

    lr: float
    """Learning rate."""
    weight: float = 0.0
    """The method's main number: the factor λ of a penalty; ReDo's threshold τ, the replacement rate ρ of continual
    backprop or the shrinkage p of Shrink & Perturb, which have no λ; 0 for methods without such a number."""
    second: float = 0.0
    """The method's second number, where it has one: ``Method.second_meaning`` says which."""


@dataclass(frozen=True)
class Method:
    """A way of training a net on one task after another; the default fields are plain training."""

    name: str
    about: str = ""
    """A short description for tables."""
    activation: Activation = "relu"
    norm: Norm = "none"
    penalty: str = ""
    """Name of the penalty in ``PENALTIES``; empty: none."""
    coupling: Literal["loss", "ratio", "decoupled"] = "loss"
    """How the penalty's gradient changes the parameters. "loss": times the weight it is added to the task's gradient.
    "ratio": likewise, but times a factor that makes its norm "weight" times the norm of the task's gradient; the
    factor is measured every ``MEASURED`` steps. "decoupled": times learning rate and weight it is subtracted from the
    parameters after the optimiser's step."""
    h_from: Literal["data", "random", "earlier"] = "data"
    """What the penalty ``linear`` takes as h: the layers' inputs for the batch, normal random numbers, or the layers'
    inputs for samples of an earlier task."""
    fraction: float = 1.0
    """Share of the batch, its first samples, from which ``linear`` takes h."""
    reverse: Literal["", "full", "layerwise"] = ""
    """Mode of the paper's reverse loss, which is added to the task's loss times the weight; empty: none."""
    change: Literal["", "shrink-and-perturb", "redo", "continual-backprop", "reset"] = ""
    """How the parameters are changed beside the optimiser, after each step, or, with "reset", before each task."""
    weights: tuple[tuple[float, float], ...] = ()
    """Pairs (weight, second number) that are tried; empty for methods without a weight."""
    second_meaning: str = ""
    """What the second number of a setting means, where the method has one."""

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
        """The settings that are tried with optimiser "adam" or "sgd": ``SETTINGS`` for every method of ``METHODS``."""
        if self.weights:
            return tuple(MethodSetting(lr, *pair) for lr, pair in product(LEARNING_RATES[optimiser], self.weights))
        low, high = SPAN[optimiser]
        return tuple(MethodSetting(10 ** (low + (high - low) * i / (SETTINGS - 1))) for i in range(SETTINGS))

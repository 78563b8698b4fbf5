"""What the reverse pass tells a rule beside the call itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Seen(NamedTuple):
    """The statistics of what a batch norm was given in the reverse pass."""

    mean: Tensor
    """(C,), or with the dimensions of the data."""
    inverse: Tensor
    """1/σ, with eps added to σ²; of the same shape."""
    eps: float
    size: int | Tensor
    """Values in each channel; a tensor where a mask says how many count."""


Known = tuple[Tensor, Tensor, Tensor]
"""Running mean and variance, (C,), and whether there are any yet, ()."""


class NormStatistics(NamedTuple):
    """The statistics of the reverse data at one place where the reverse pass applies a batch norm again."""

    known: Callable[[int], Known | None]
    """Given the number of channels, finds the running ones; None: the norm's own are used."""
    leave: Callable[[Seen], None]
    """Takes those of the data that the norm is given."""
    gather: bool = False
    """Whether the norm uses and leaves the statistics of what it is given in evaluation, too."""

    def running(self, mean: Tensor, var: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Those of the reverse data, once there are some; else the norm's own."""
        known = self.known(mean.shape[0])
        if known is None or var is None:
            return mean, var
        own_mean, own_var, there = known
        return torch.where(there, own_mean.to(mean.dtype), mean), torch.where(there, own_var.to(var.dtype), var)


class RuleContext(NamedTuple):
    """What the reverse pass knows of one operation beside the call itself."""

    mask: Tensor | None = None
    """For a norm, a convolution or a sum, True where its data counts: as many dimensions, each as long or 1; None:
    everywhere."""
    statistics: NormStatistics | None = None
    """For a batch norm; None: the reverse data has none."""


NO_CONTEXT = RuleContext()


class StepMasks(NamedTuple):
    """Where the data of one step of the reverse pass counts."""

    input: Callable[[], Tensor | None]
    """At the input of the operation that the step is about; None: everywhere. Says so where nobody knows."""
    output: Callable[[], Tensor | None]
    """At its output."""
    known: bool
    """Whether there is a mask of its output."""


def of_input(op: object, masks: StepMasks) -> Tensor | None:
    """What is shared out among positions needs those of its input."""
    return masks.input()


def of_output(op: object, masks: StepMasks) -> Tensor | None:
    """What reaches over positions needs those of its output."""
    return masks.output()


def of_known_output(op: object, masks: StepMasks) -> Tensor | None:
    """What may reach over positions takes those of its output, as far as they are known."""
    return masks.output() if masks.known else None

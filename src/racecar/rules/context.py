"""What a rule is given beside the call itself: the mask of padding, and statistics for batch norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class BatchStatistics(NamedTuple):
    """Statistics of the data that one batch norm was applied to in the reverse pass."""

    mean: Tensor
    """(C,), or with as many dimensions as the data."""
    inverse: Tensor
    """1/√(σ² + eps), of the same shape."""
    eps: float
    size: int | Tensor
    """Number of values per channel; a tensor where a mask says how many count."""


RunningStatistics = tuple[Tensor, Tensor, Tensor]
"""Running mean and variance of the reverse data, (C,), and whether anything was recorded yet, bool of shape ()."""


class NormStatistics(NamedTuple):
    """Access to the statistics of the reverse data at one place where the reverse pass applies a batch norm."""

    find_running: Callable[[int], RunningStatistics | None]
    """Finds the running statistics, given the number of channels; None: the norm uses its own."""
    record: Callable[[BatchStatistics], None]
    """Receives the statistics of the data that the norm is applied to."""
    in_evaluation: bool = False
    """Whether the norm uses and records statistics of its data in evaluation, too."""

    def running(self, mean: Tensor, var: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Running mean and variance of the reverse data if recorded, else ``mean`` and ``var``, the norm's own."""
        recorded = self.find_running(mean.shape[0])
        if recorded is None or var is None:
            return mean, var
        recorded_mean, recorded_var, exists = recorded
        mean = torch.where(exists, recorded_mean.to(mean.dtype), mean)
        return mean, torch.where(exists, recorded_var.to(var.dtype), var)


class RuleContext(NamedTuple):
    """What the reverse pass gives a rule for one operation, beside the call itself."""

    mask: Tensor | None = None
    """For a norm, a convolution or a sum: True where the data counts, with as many dimensions, each as long or 1; None:
    everything counts."""
    statistics: NormStatistics | None = None
    """For a batch norm; None: no statistics of the reverse data are kept."""


NO_CONTEXT = RuleContext()


class StepMasks(NamedTuple):
    """Access to the masks at the input and the output of an operation that the reverse pass undoes or repeats."""

    input: Callable[[], Tensor | None]
    """Finds the mask of the operation's input; None: everything counts. Raises an error if the mask is unknown."""
    output: Callable[[], Tensor | None]
    """The same for the operation's output."""
    known: bool
    """Whether the mask of the output is known and is not None."""


def of_input(op: object, masks: StepMasks) -> Tensor | None:
    """The mask of the input: for sums, which are distributed over the positions of their input."""
    return masks.input()


def of_output(op: object, masks: StepMasks) -> Tensor | None:
    """The mask of the output: for norms whose statistics run over positions."""
    return masks.output()


def of_known_output(op: object, masks: StepMasks) -> Tensor | None:
    """The mask of the output if it is known: for norms whose statistics may run over positions."""
    return masks.output() if masks.known else None

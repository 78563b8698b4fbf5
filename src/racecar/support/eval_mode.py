"""A model held still while it is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from racecar.support.torch_private import AnyBatchNorm

STATISTICS = ("batch", "running")
"""Of the forward pass, and in the reverse pass too where there are no others."""


@contextmanager
def eval_mode(model: nn.Module, statistics: str = "running") -> Iterator[None]:
    """The model in evaluation mode, and afterwards as it was.

    Args:
        statistics: what batch norm uses: its "running" statistics, or those of the "batch" that it sees, as in
            training. The running ones are those of forward data, and can be far off for what the reverse pass brings.
    """
    if statistics not in STATISTICS:
        raise ValueError(f"statistics must be one of {', '.join(STATISTICS)}, not {statistics!r}")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    before = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in before:  # not model.eval(), which a model may have redefined
            module.training = statistics == "batch" and isinstance(module, AnyBatchNorm)
        yield
    finally:
        for module, training in before:
            module.training = training

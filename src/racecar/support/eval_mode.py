"""Put a model into evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from racecar.support.torch_private import AnyBatchNorm

STATISTICS = ("batch", "running")
"""The statistics that batch norms can use in ``eval_mode``."""


@contextmanager
def eval_mode(model: nn.Module, statistics: str = "running") -> Iterator[None]:
    """Context manager: the model is in evaluation mode, and afterwards in the mode it was in.

    Args:
        statistics: which ones batch norms use: "running", or those of the "batch", as in training. The running ones
            are those of forward data, and can be far off for the data of a reverse pass.
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

"""A model held still while it is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from racecar.racecar import Racecar
from racecar.statistics import ReverseStatistics

STATISTICS = ("batch", "running")
"""Of the forward pass, and on the way back too where there are no others."""


def plain(model: nn.Module) -> nn.Module:
    """A Racecar's model; any other model itself."""
    return model.model if isinstance(model, Racecar) else model


def which(
    model: nn.Module, statistics: str | ReverseStatistics | None
) -> tuple[nn.Module, str, ReverseStatistics | None]:
    """The model to look at, the statistics of its forward pass and those of the way back, if it has its own.

    Args:
        model: any model, or a Racecar.
        statistics: "batch" or "running" for both; "reverse" for a Racecar's own on the way back; those to use there;
            or None: "reverse" for a Racecar that has some, else "batch".
    """
    if isinstance(statistics, ReverseStatistics):
        return plain(model), "running", statistics
    own = model.reverse_statistics if isinstance(model, Racecar) and model.reverse_statistics.known else None
    if statistics is None:
        statistics = "batch" if own is None else "reverse"
    if statistics != "reverse":
        return plain(model), statistics, None
    if own is None:
        raise ValueError(
            "there are no reverse statistics: a Racecar has some after its first training call, and "
            "racecar.inspect.calibrate(model, batches) finds them for any model"
        )
    return plain(model), "running", own


@contextmanager
def looking(model: nn.Module, statistics: str = "running") -> Iterator[None]:
    """The model in evaluation mode, and afterwards as it was.

    Args:
        statistics: what batch norm uses: its "running" statistics, or those of the "batch" that it sees, as in
            training. The running ones are those of forward data, and can be far off for what the way back brings.
    """
    if statistics not in STATISTICS:
        raise ValueError(f"statistics must be one of {', '.join(STATISTICS)}, not {statistics!r}")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    before = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in before:  # not model.eval(), which a model may have redefined
            module.training = statistics == "batch" and isinstance(module, _BatchNorm)
        yield
    finally:
        for module, training in before:
            module.training = training

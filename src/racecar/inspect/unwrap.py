"""What is looked at: a model or a Racecar, and by which statistics."""

from __future__ import annotations

from torch import nn

from racecar.racecar import Racecar
from racecar.reverse.reverse_statistics import ReverseStatistics


def unwrapped(model: nn.Module) -> nn.Module:
    """A Racecar's model; any other model itself."""
    return model.model if isinstance(model, Racecar) else model


def model_and_statistics(
    model: nn.Module, statistics: str | ReverseStatistics | None
) -> tuple[nn.Module, str, ReverseStatistics | None]:
    """The model to look at, the statistics of its forward pass and those of the reverse pass, if it has its own.

    Args:
        model: any model, or a Racecar.
        statistics: "batch" or "running" for both; "reverse" for a Racecar's own in reverse; those to use there;
            or None: "reverse" for a Racecar that has some, else "batch".
    """
    if isinstance(statistics, ReverseStatistics):
        return unwrapped(model), "running", statistics
    own = model.reverse_statistics if isinstance(model, Racecar) and model.reverse_statistics.known else None
    if statistics is None:
        statistics = "batch" if own is None else "reverse"
    if statistics != "reverse":
        return unwrapped(model), statistics, None
    if own is None:
        raise ValueError(
            "there are no reverse statistics: a Racecar has some after its first training call, and "
            "racecar.inspect.calibrate(model, batches) finds them for any model"
        )
    return unwrapped(model), "running", own

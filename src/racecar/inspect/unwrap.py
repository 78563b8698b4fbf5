"""The model inside a Racecar, and the batch-norm statistics to measure it with."""

from __future__ import annotations

from torch import nn

from racecar.racecar import Racecar
from racecar.reverse.reverse_statistics import ReverseStatistics


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside a Racecar; any other model is returned as it is."""
    return model.model if isinstance(model, Racecar) else model


def model_and_statistics(
    model: nn.Module, statistics: str | ReverseStatistics | None
) -> tuple[nn.Module, str, ReverseStatistics | None]:
    """Resolve the argument ``statistics`` of ``invertibility``: what batch norms use in forward and reverse pass.

    Args:
        model: any model, or a Racecar.
        statistics: "batch" or "running" for both passes; "reverse": running in the forward pass, those of the Racecar
            in the reverse pass; a ``ReverseStatistics``: the same with these; None: "reverse" for a Racecar that has
            some, else "batch".

    Returns:
        The model without the Racecar, "batch" or "running" for the forward pass, and the statistics of the reverse
        pass, None if it uses the same as the forward pass.
    """
    if isinstance(statistics, ReverseStatistics):
        return unwrapped(model), "running", statistics
    reverse = model.reverse_statistics if isinstance(model, Racecar) and model.reverse_statistics.known else None
    if statistics is None:
        statistics = "batch" if reverse is None else "reverse"
    if statistics != "reverse":
        return unwrapped(model), statistics, None
    if reverse is None:
        raise ValueError(
            "there are no reverse statistics: a Racecar has some after its first training call, and "
            "racecar.inspect.calibrate(model, batches) finds them for any model"
        )
    return unwrapped(model), "running", reverse

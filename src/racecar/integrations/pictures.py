"""Inputs rebuilt from every depth of a network, as one picture for a logger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from racecar.inspect import Invertibility

TAG = "racecar/rebuilt"


def grid(found: Invertibility) -> Tensor:
    """(C, rows · H, N · W) in [0, 1]: a row of inputs, and below it one for each depth that they are rebuilt from."""
    x = found.inputs
    low, span = x.min(), (x.max() - x.min()).clamp(min=1e-12)
    rows = [torch.cat(list((row - low) / span), dim=2) for row in (x, *found.rebuilt.values())]
    return torch.cat(rows, dim=1).clamp(0, 1).float().cpu()


def log_picture(loggers: Sequence[Any], picture: Tensor, step: int) -> None:
    """To those that take pictures: TensorBoard's writer, or a logger that has one; or by ``log_image``, as others of
    Lightning's do."""
    for logger in loggers:
        writer: Any = getattr(logger, "experiment", logger)
        if hasattr(logger, "log_image"):
            logger.log_image(TAG, [picture.movedim(0, 2).numpy()], step=step)
        elif hasattr(writer, "add_image"):
            writer.add_image(TAG, picture, step)

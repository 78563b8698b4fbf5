"""One image, for a logger, of inputs and their reconstructions from every depth of a network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from racecar.inspect import Invertibility

TAG = "racecar/rebuilt"


def grid(result: Invertibility) -> Tensor:
    """Arrange inputs and reconstructions in one image.

    Args:
        result: measured on N pictures (N, C, H, W).

    Returns:
        (C, rows · H, N · W) with values in [0, 1]: a row of inputs, and below it a row of reconstructions for each
        depth.
    """
    x = result.inputs
    low, span = x.min(), (x.max() - x.min()).clamp(min=1e-12)
    rows = [torch.cat(list((row - low) / span), dim=2) for row in (x, *result.rebuilt.values())]
    return torch.cat(rows, dim=1).clamp(0, 1).float().cpu()


def log_picture(loggers: Sequence[Any], picture: Tensor, step: int) -> None:
    """Send a picture (C, H, W) to every logger that takes images: Lightning's with ``log_image``, a TensorBoard writer,
    or a logger that has one; others are skipped."""
    for logger in loggers:
        writer: Any = getattr(logger, "experiment", logger)
        if hasattr(logger, "log_image"):
            logger.log_image(TAG, [picture.movedim(0, 2).numpy()], step=step)
        elif hasattr(writer, "add_image"):
            writer.add_image(TAG, picture, step)

"""Accuracy of a classifier."""

from __future__ import annotations

import torch
from torch import nn

from racecar_lab.task import Split


@torch.no_grad()
def accuracy(model: nn.Module, split: Split, batch: int | None = None) -> float:
    """Share of the samples whose largest output is that of their label. The device is read once, at the end.

    Args:
        batch: number of samples at once; None: 4096 on a GPU, else 1024.
    """
    batch = batch or (4096 if split.x.is_cuda else 1024)
    right = sum(
        (model(x).argmax(1) == y).sum() for x, y in zip(split.x.split(batch), split.y.split(batch), strict=True)
    )
    return float(right) / len(split)

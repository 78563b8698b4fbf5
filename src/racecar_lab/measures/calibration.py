"""Calibration of a classifier: its negative log-likelihood and expected calibration error."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.task import Split

BINS = 15
"""Number of bins of confidence for the expected calibration error, as in Guo et al. (2017)."""


@torch.no_grad()
def calibration(model: nn.Module, split: Split, batch: int = 1024) -> dict[str, float]:
    """Mean negative log-likelihood ("nll") and expected calibration error ("ece") of a classifier on samples (N, …)."""
    logits = torch.cat([model(x) for x in split.x.split(batch)]).double()
    return {"nll": float(F.cross_entropy(logits, split.y)), "ece": expected_error(logits.softmax(1), split.y)}


def expected_error(shares: Tensor, y: Tensor, bins: int = BINS) -> float:
    """Expected calibration error: |accuracy − confidence| in bins of confidence of equal width, weighted by how many
    samples are in them.

    Args:
        shares: probabilities (N, K), which sum to 1.
        y: labels (N,).
    """
    confidence, guess = shares.max(1)
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1  # the upper end belongs to a bin
    difference = (guess == y).to(shares) - confidence
    return float(shares.new_zeros(bins).index_add(0, index, difference).abs().sum() / len(y))

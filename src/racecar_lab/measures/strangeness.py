"""Scores that say how unlike the training data a sample is, higher for stranger, and how well they tell."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def auroc(known: Tensor, strange: Tensor) -> float:
    """How often a strange sample has the higher score than a known one; ties count half. 0.5: nothing is seen.

    Args:
        known: scores (N,) of samples like the training data.
        strange: scores (M,) of others.

    Returns:
        The area under the ROC curve, by ranks; NaN where a score is NaN.
    """
    scores = torch.cat((known, strange)).double()
    if scores.isnan().any():
        return float("nan")
    _, place, counts = scores.unique(return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    ranks = (ends - (counts.double() - 1) / 2)[place[len(known) :]]  # from 1; equal scores share their mean rank
    n, m = len(known), len(strange)
    return float((ranks.sum() - m * (m + 1) / 2) / (n * m))


def unsure(logits: Tensor) -> Tensor:
    """−log of the largest softmax probability, (N, K) → (N,): it orders as one minus that probability does (Hendrycks
    and Gimpel 2017), also where it would round to 0."""
    return -logits.double().log_softmax(1).amax(1)


def energy(logits: Tensor) -> Tensor:
    """−log Σ exp of the logits, (N, K) → (N,) (Liu et al. 2020)."""
    return -logits.double().logsumexp(1)


@dataclass(frozen=True, eq=False)
class Mahalanobis:
    """Gaussians of one covariance, one for each class, fitted to features (Lee et al. 2018, of one layer and without
    changes to the input). Directions in which the features never vary say nothing."""

    means: Tensor
    """(K, D)"""
    whiten: Tensor
    """(D, R): after it, the covariance is that of R independent numbers of variance 1."""

    @classmethod
    def fit(cls, features: Tensor, y: Tensor) -> Mahalanobis:
        """To features (N, D) with labels (N,)."""
        features = features.double()
        labels, place = y.unique(return_inverse=True)
        means = torch.stack([features[y == label].mean(0) for label in labels])
        apart = features - means[place]
        values, vectors = torch.linalg.eigh(apart.t() @ apart / len(apart))
        seen = values > values[-1] * len(values) * torch.finfo(values.dtype).eps
        return cls(means, vectors[:, seen] / values[seen].sqrt())

    def __call__(self, features: Tensor) -> Tensor:
        """Squared distance from the nearest mean, (N, D) → (N,)."""
        return torch.cdist(features.double() @ self.whiten, self.means @ self.whiten).amin(1).square()


def squared_errors(x: Tensor, rebuilt: Tensor) -> tuple[Tensor, Tensor]:
    """Σ(x − x')² of every sample (N, …), and the same over Σx²: (N,) each. 0 for an x of zeros only."""
    x, rebuilt = x.flatten(1).double(), rebuilt.flatten(1).double()
    error, size = (x - rebuilt).square().sum(1), x.square().sum(1)
    return error, torch.where(size > 0, error / torch.where(size > 0, size, 1), 0)

"""Out-of-distribution scores, which are higher for samples less like the training data, and their AUROC."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from racecar.support.extras import need


def auroc(known: Tensor, strange: Tensor) -> float:
    """The probability that a strange sample has a higher score than a known one; ties count half. 0.5 is chance.

    Args:
        known: scores (N,) of samples like the training data.
        strange: scores (M,) of others.

    Returns:
        The area under the ROC curve, by ranks; NaN where a score is NaN.
    """
    stats = need("scipy.stats", "lab")
    ranks = stats.rankdata(torch.cat((known, strange)).double().cpu().numpy(), nan_policy="propagate")
    n, m = len(known), len(strange)
    return float((ranks[n:].sum() - m * (m + 1) / 2) / (n * m))


def unsure(logits: Tensor) -> Tensor:
    """The score of uncertainty: −log of the largest softmax probability of logits, (N, K) → (N,). It orders samples as
    one minus that probability does (Hendrycks and Gimpel 2017), even where the latter rounds to 0."""
    return -logits.double().log_softmax(1).amax(1)


def energy(logits: Tensor) -> Tensor:
    """The energy score −log Σ exp of logits, (N, K) → (N,) (Liu et al. 2020)."""
    return -logits.double().logsumexp(1)


@dataclass(frozen=True, eq=False)
class Mahalanobis:
    """The Mahalanobis score: a Gaussian for each class, with a shared covariance, fitted to features (Lee et al. 2018,
    for one layer and without changes to the input). Directions in which the features do not vary are left out."""

    means: Tensor
    """The mean of the features of each class, (K, D)."""
    whiten: Tensor
    """Whitening matrix (D, R): features times it have the identity as covariance."""

    @classmethod
    def fit(cls, features: Tensor, y: Tensor) -> Mahalanobis:
        """The Mahalanobis score fitted to features (N, D) of training samples with labels y (N,)."""
        features = features.double()
        labels, index = y.unique(return_inverse=True)
        means = torch.stack([features[y == label].mean(0) for label in labels])
        residual = features - means[index]
        values, vectors = torch.linalg.eigh(residual.t() @ residual / len(residual))
        varying = values > values[-1] * len(values) * torch.finfo(values.dtype).eps
        return cls(means, vectors[:, varying] / values[varying].sqrt())

    def __call__(self, features: Tensor) -> Tensor:
        """Squared Mahalanobis distance of features from the nearest mean, (N, D) → (N,)."""
        return torch.cdist(features.double() @ self.whiten, self.means @ self.whiten).amin(1).square()


def squared_errors(x: Tensor, rebuilt: Tensor) -> tuple[Tensor, Tensor]:
    """The squared reconstruction error Σ(x − x')² of every sample (N, …), and Σ(x − x')² / Σx², 0 for an x of zeros:
    (N,) each."""
    x, rebuilt = x.flatten(1).double(), rebuilt.flatten(1).double()
    error, size = (x - rebuilt).square().sum(1), x.square().sum(1)
    return error, torch.where(size > 0, error / torch.where(size > 0, size, 1), 0)

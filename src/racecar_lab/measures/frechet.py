"""The Fréchet distance between two sets of features, each taken as normally distributed."""

from __future__ import annotations

import torch
from torch import Tensor


def frechet_distance(first: Tensor, second: Tensor) -> float:
    """|μ − ν|² + Tr(S + T − 2 (S T)^½) for features (N, D) with mean μ and covariance S, and (M, D) with ν and T.

    The trace of (S T)^½ is that of (S^½ T S^½)^½, which is symmetric.
    """
    first, second = first.double(), second.double()
    s, t = first.T.cov(), second.T.cov()
    root = _root(s)
    mixed = torch.linalg.eigvalsh(root @ t @ root).clamp(min=0).sqrt().sum()
    return float((first.mean(0) - second.mean(0)).square().sum() + s.trace() + t.trace() - 2 * mixed)


def _root(matrix: Tensor) -> Tensor:
    """The square root of a symmetric matrix without negative eigenvalues."""
    values, vectors = torch.linalg.eigh(matrix)
    return vectors * values.clamp(min=0).sqrt() @ vectors.T

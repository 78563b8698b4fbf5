"""Spearman's rank correlation, and the one-to-one matching of two sets of variables by it."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar.support.extras import need


def rank_correlations(first: Tensor, second: Tensor) -> Tensor:
    """|Spearman's ρ| of every column of the first (N, A) with every column of the second (N, B): (A, B), 0 where a
    column is constant. Equal values share their mean rank."""
    rankdata = need("scipy.stats", "lab").rankdata
    ranks = [torch.from_numpy(rankdata(x.detach().double().cpu().numpy(), axis=0)) for x in (first, second)]
    a, b = (x - x.mean(0) for x in ranks)
    sizes = a.norm(dim=0).unsqueeze(1) * b.norm(dim=0)
    return ((a.T @ b).abs() / torch.where(sizes == 0, 1, sizes)).clamp(max=1)


def matched(correlations: Tensor) -> list[int]:
    """For each row (A, B), the column that it is matched with, one-to-one, so that the sum is largest. A is at most
    B."""
    return need("scipy.optimize", "lab").linear_sum_assignment(correlations.numpy(), maximize=True)[1].tolist()

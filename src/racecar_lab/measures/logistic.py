"""Multinomial logistic regression to convergence, for several sets of samples at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

TOLERANCE = 1e-7
"""Largest gradient of any weight at the end."""
LOOK = 20
"""Steps between two looks at the gradient: each waits for a GPU."""
LIMIT = 100_000
"""Steps; with an L2 of 0.001 it takes some hundred."""


@torch.no_grad()
def logistic(x: Tensor, y: Tensor, classes: int, l2: float) -> tuple[Tensor, Tensor]:
    """The one minimum of the mean cross-entropy + l2/2 · (Σ w² + Σ b²), for B sets of samples.

    Accelerated gradients with restarts (O'Donoghue and Candès, 2015) by Böhning's (1992) bound on the curvature, which
    needs no line search, so that all sets take the same steps: a hundred short ones, and no wait for a GPU in them.
    Where samples are fewer than features, in the dual: weights are sums of samples.

    Args:
        x: features (B, N, D), in double precision.
        y: labels (B, N) in 0 … classes − 1.
        classes: their number K.
        l2: greater than 0.

    Returns:
        Weights (B, K, D) and biases (B, K).
    """
    if not l2 > 0:
        raise ValueError(f"l2 must be greater than 0, not {l2!r}: without it there is no single solution")
    count = x.shape[1]
    whole = torch.cat((x, torch.ones_like(x[..., :1])), 2)
    dual = count < whole.shape[2]
    gram = whole @ whole.mT if dual else whole.mT @ whole
    forward = gram if dual else whole
    bound = gram / (2 * count) + l2 * torch.eye(gram.shape[1], dtype=x.dtype, device=x.device)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(bound))
    target = F.one_hot(y, classes).to(x.dtype)
    w = ahead = x.new_zeros(len(x), gram.shape[1], classes)
    speed = x.new_ones(len(x), 1, 1)
    for step in range(LIMIT):
        error = ((forward @ ahead).softmax(2) - target) / count
        gradient = (error if dual else whole.mT @ error) + l2 * ahead
        if step % LOOK == 0 and _largest(whole.mT @ gradient if dual else gradient) <= TOLERANCE:
            found = (whole.mT @ ahead if dual else ahead).mT
            return found[..., :-1], found[..., -1]
        new = ahead - inverse @ gradient
        uphill = ((ahead - new) * (new - w)).sum((1, 2), keepdim=True) > 0  # the last step went too far
        speed = torch.where(uphill, 1.0, speed)
        faster = (1 + (1 + 4 * speed.square()).sqrt()) / 2
        ahead = new + (speed - 1) / faster * (new - w)
        w, speed = new, faster
    raise FloatingPointError(f"logistic regression did not converge in {LIMIT} steps: l2 = {l2!r} is too small for it")


def _largest(gradient: Tensor) -> float:
    return float(gradient.abs().max())

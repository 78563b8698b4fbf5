"""SRIP: the spectral norm of WᵀW − I by power iteration (Bansal et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.orthogonality.gram import check_side, orient, residual
from racecar.orthogonality.weights import Patterns, Weights, exact, matrices, total

FORMED = 64
"""Largest Gram matrix that is computed; those of equal size are then iterated together. For larger ones a few products
with W are cheaper."""


def srip(
    model_or_weights: Weights,
    *,
    power: int = 2,
    squared: bool = False,
    side: str = "smaller",
    layers: Patterns | None = None,
    generator: torch.Generator | None = None,
    draw: Callable[..., Tensor] | None = None,
) -> Tensor:
    """The SRIP loss (spectral restricted isometry property): Σ σ(WᵀW − I) over the layers, σ the spectral norm.

    σ is estimated from below by power iteration: ``power`` products with WᵀW − I from a direction that every call draws
    at random. The gradient is that of the estimate, through all products.

    The paper (Bansal et al. 2018) takes σ and side "rows", and so does its published code for ResNet (Keras). The code
    for Wide ResNet takes σ² and "smaller", the code for ImageNet and SVHN σ² and "columns"; all take two products. σ is
    at least 1 for a W with more columns than rows and "columns", and for one with more rows and "rows".

    Args:
        model_or_weights: a model, or its weights, as for `so`.
        layers: name patterns of the layers; None: all.
        side: which Gram matrix is compared with the identity: "columns" WᵀW, "rows" WWᵀ, "smaller" the smaller one.
        power: number of products; σ is the norm after the last one.
        squared: whether to sum σ² instead of σ.
        generator: random generator of the directions, on the device of the weights.
        draw: function that draws the directions, called like ``torch.randn(*shape, device=…, dtype=…)``, in place of
            ``generator``; for numbers that were drawn beforehand.
    """
    check_side(side)
    if not isinstance(power, int) or power < 1:
        raise ValueError(f"power must be a whole number of at least 1, not {power!r}")
    if draw is None:
        draw = partial(torch.randn, generator=generator)
    elif generator is not None:
        raise ValueError("generator and draw both say where random directions come from: give one of them")
    ends: list[Tensor] = []
    formed: dict[tuple[torch.device, torch.dtype, int], list[Tensor]] = {}

    def add(product: Callable[[Tensor], Tensor], like: Tensor) -> None:
        start = draw(*like.shape[:2], 1, device=like.device, dtype=like.dtype)
        ends.append(iterate(product, start, power))

    for w in matrices(model_or_weights, layers):
        w = orient(w, side)
        if w.shape[1] <= FORMED:
            formed.setdefault((w.device, w.dtype, w.shape[1]), []).append(residual(w))
        else:
            add(partial(unformed, w), w)
    for residuals in formed.values():
        stack = torch.cat(residuals)
        add(partial(torch.bmm, stack), stack)
    return total([end.square().sum() if squared else torch.linalg.vector_norm(end, dim=(1, 2)).sum() for end in ends])


def iterate(product: Callable[[Tensor], Tensor], v: Tensor, power: int) -> Tensor:
    """Power iteration: multiply vectors with symmetric matrices ``power`` times, normalising them before each product.

    Args:
        product: function that multiplies the matrices with vectors, (layers, n, 1) → (layers, n, 1).
        v: the vectors to start from, (layers, n, 1).
        power: number of products.

    Returns:
        The vectors after the last product, (layers, n, 1); their norms approach the largest singular values.
    """
    with exact(v):
        for _ in range(power):
            v = product(F.normalize(v, dim=1))
        return v


def unformed(w: Tensor, v: Tensor) -> Tensor:
    """(W Wᵀ − I) v without computing W Wᵀ: w (layers, rows, columns), v (layers, rows, 1) → (layers, rows, 1).

    Wᵀv is computed as (vᵀW)ᵀ, so that its gradient has W's memory layout, in which gradients add up fast.
    """
    return torch.baddbmm(v, w, torch.bmm(v.mT, w).mT, beta=-1)

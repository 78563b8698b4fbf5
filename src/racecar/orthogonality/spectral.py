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
"""Gram matrices up to this size are formed, and iterated together whatever their layers' shapes; larger ones never: it
would cost more than a few products with W."""


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
    """Spectral restricted isometry: Σ σ(WᵀW − I) over the layers, σ the largest singular value.

    σ is estimated from below, by ``power`` products with WᵀW − I from a random direction that is drawn anew in every
    call. The gradient flows through all of them, so it is that of the estimate; with many products estimate and
    gradient become those of σ.

    The paper has σ and "rows". Of its published codes ResNet (Keras) has these, Wide ResNet σ² and "smaller", ImageNet
    and SVHN σ² and "columns"; all take two products. With "columns" a wide W has σ ≥ 1, with "rows" a tall one.

    Args:
        model_or_weights, layers, side: as for `so`.
        power: number of products; the last one gives σ.
        squared: sum σ² instead of σ.
        generator: of the random directions, on the device of the weights.
        draw: draws the directions instead, called as ``torch.randn(*shape, device=…, dtype=…)`` is; for numbers that
            were drawn beforehand.
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
    """Symmetric matrices times vectors (layers, n, 1), again and again: their norms become the largest singular values.

    Args:
        product: matrices times vectors, (layers, n, 1) → (layers, n, 1).
        v: where to start, (layers, n, 1).
    """
    with exact(v):
        for _ in range(power):
            v = product(F.normalize(v, dim=1))
        return v


def unformed(w: Tensor, v: Tensor) -> Tensor:
    """(W Wᵀ − I) v without the Gram matrix. Wᵀv as (vᵀW)ᵀ: its gradient has W's layout, and adds up fast."""
    return torch.baddbmm(v, w, torch.bmm(v.mT, w).mT, beta=-1)

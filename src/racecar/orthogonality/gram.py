"""Orthogonality regularisers of the Gram matrix of a weight: SO, DSO and MC (Bansal et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar.orthogonality.weights import Patterns, Weights, exact, matrices, total

SIDES = ("smaller", "columns", "rows")


def so(model_or_weights: Weights, *, layers: Patterns | None = None, side: str = "smaller") -> Tensor:
    """The soft orthogonality loss: Σ ‖WᵀW − I‖²_F over the layers, a scalar.

    ‖WᵀW − I‖² and ‖W Wᵀ − I‖² differ by the constant columns − rows, so all sides have the same gradient.

    Args:
        model_or_weights: a module, whose linear layers, convolutions and recurrent weights are taken; or one weight
            (out, rest…), several weights, or a mapping from name to weight.
        layers: fnmatch pattern or patterns of the qualified names of the layers to take; None: all.
        side: which Gram matrix: "smaller" (the smaller of both), "columns" (WᵀW) or "rows" (W Wᵀ).
    """
    check_side(side)
    return total([squared(w, side) for w in matrices(model_or_weights, layers)])


def dso(model_or_weights: Weights, *, layers: Patterns | None = None) -> Tensor:
    """The double soft orthogonality loss: Σ ‖WᵀW − I‖²_F + ‖W Wᵀ − I‖²_F over the layers, a scalar.

    It is 2·so plus the constant |rows − columns| of each layer, so it can become 0 for square weights alone.

    Args:
        model_or_weights, layers: as for `so`.
    """
    return total([squared(w, "columns", "rows") for w in matrices(model_or_weights, layers)])


def mc(model_or_weights: Weights, *, layers: Patterns | None = None, side: str = "smaller") -> Tensor:
    """The mutual coherence loss: the sum over the layers of the largest absolute entry of WᵀW − I, a scalar.

    Args:
        model_or_weights, layers, side: as for `so`.
    """
    check_side(side)
    return total([residual(orient(w, side)).abs().amax((1, 2)).sum() for w in matrices(model_or_weights, layers)])


def check_side(side: str) -> None:
    """Raise unless ``side`` is one of ``SIDES``."""
    if side not in SIDES:
        raise ValueError(f"side must be one of {', '.join(map(repr, SIDES))}, not {side!r}")


def orient(w: Tensor, side: str) -> Tensor:
    """W or its transpose, (layers, rows, columns), such that W Wᵀ is the Gram matrix of ``side``."""
    _, rows, columns = w.shape
    return w.mT if side == "columns" or (side == "smaller" and rows > columns) else w


def residual(w: Tensor) -> Tensor:
    """W Wᵀ − I for stacked weights: (layers, rows, columns) → (layers, rows, rows)."""
    with exact(w):
        return torch.baddbmm(torch.eye(w.shape[1], device=w.device, dtype=w.dtype), w, w.mT, beta=-1)


def squared(w: Tensor, *sides: str) -> Tensor:
    """Σ ‖Gram matrix − I‖²_F over stacked weights w (layers, rows, columns) and over the sides, a scalar.

    The larger Gram matrix is never computed: its loss is that of the smaller one plus a constant.
    """
    smaller = residual(orient(w, "smaller")).square().sum()
    return len(sides) * smaller + len(w) * sum(excess(side, *w.shape[1:]) for side in sides)


def excess(side: str, rows: int, columns: int) -> int:
    """The constant by which ‖Gram matrix − I‖²_F of ``side`` is more than that of the smaller Gram matrix."""
    return max(0, {"smaller": 0, "rows": rows - columns, "columns": columns - rows}[side])

"""Regularisers that form a Gram matrix: SO, DSO and MC (Bansal et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar.orthogonality.weights import Patterns, Weights, exact, matrices, total

SIDES = ("smaller", "columns", "rows")


def so(model_or_weights: Weights, *, layers: Patterns | None = None, side: str = "smaller") -> Tensor:
    """Soft orthogonality: Σ ‖WᵀW − I‖²_F over the layers.

    ‖WᵀW − I‖² and ‖W Wᵀ − I‖² differ by the constant columns − rows, so all sides have the same gradient.

    Args:
        model_or_weights: a module, of which all linear layers, convolutions and recurrent weights are taken; a weight
            (out, rest…), several, or a mapping from name to weight.
        layers: pattern or patterns (fnmatch) of the qualified names to take.
        side: "smaller" (the smaller Gram matrix), "columns" (WᵀW) or "rows" (W Wᵀ).
    """
    check_side(side)
    return total([squared(w, side) for w in matrices(model_or_weights, layers)])


def dso(model_or_weights: Weights, *, layers: Patterns | None = None) -> Tensor:
    """Double soft orthogonality: Σ ‖WᵀW − I‖²_F + ‖W Wᵀ − I‖²_F over the layers.

    It is 2·so plus the constant |rows − columns| of each layer, so zero can be reached for square weights alone.

    Args:
        model_or_weights, layers: as for `so`.
    """
    return total([squared(w, "columns", "rows") for w in matrices(model_or_weights, layers)])


def mc(model_or_weights: Weights, *, layers: Patterns | None = None, side: str = "smaller") -> Tensor:
    """Mutual coherence: Σ ‖WᵀW − I‖_∞ over the layers, the largest absolute entry of each (not a row sum).

    Args:
        model_or_weights, layers, side: as for `so`.
    """
    check_side(side)
    return total([residual(orient(w, side)).abs().amax((1, 2)).sum() for w in matrices(model_or_weights, layers)])


def check_side(side: str) -> None:
    """Refuse a side that does not exist."""
    if side not in SIDES:
        raise ValueError(f"side must be one of {', '.join(map(repr, SIDES))}, not {side!r}")


def orient(w: Tensor, side: str) -> Tensor:
    """W (layers, rows, columns), transposed where that makes W Wᵀ the Gram matrix of ``side``."""
    _, rows, columns = w.shape
    return w.mT if side == "columns" or (side == "smaller" and rows > columns) else w


def residual(w: Tensor) -> Tensor:
    """W Wᵀ − I: (layers, rows, columns) → (layers, rows, rows)."""
    with exact(w):
        return torch.baddbmm(torch.eye(w.shape[1], device=w.device, dtype=w.dtype), w, w.mT, beta=-1)


def squared(w: Tensor, *sides: str) -> Tensor:
    """Σ ‖residual‖² over the sides; the larger Gram matrix is never formed."""
    smaller = residual(orient(w, "smaller")).square().sum()
    return len(sides) * smaller + len(w) * sum(excess(side, *w.shape[1:]) for side in sides)


def excess(side: str, rows: int, columns: int) -> int:
    """By how much ‖residual‖² of ``side`` is more than that of the smaller side."""
    return max(0, {"smaller": 0, "rows": rows - columns, "columns": columns - rows}[side])

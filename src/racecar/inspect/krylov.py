"""The largest singular values of a linear operator that is given as functions, not as a matrix."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]
"""A linear map on a batch of vectors: (b, n) → (b, m), one vector in each row."""


def top_singular(
    apply: Map, adjoint: Map, start: Tensor, k: int, tolerance: float = 1e-6, rounds: int = 300
) -> tuple[Tensor, Tensor]:
    """The k largest singular values of A and their right singular vectors, by a restarted block Krylov method.

    It iterates a block of vectors, not one, because a convolution has groups of equal singular values.

    Args:
        apply: x (b, n) → x Aᵀ (b, m).
        adjoint: y (b, m) → y A (b, n).
        start: (b, n) random rows to start from, b > k (or b = n); more rows converge in fewer rounds.
        k: how many singular values to compute.
        tolerance: residual ‖AᵀAv − σ²v‖ / σ₁² of every vector below which the iteration ends.
        rounds: most restarts; if they are not enough, a warning gives the residual.

    Returns:
        values (k,), descending, and vectors (k, n), orthonormal.
    """
    block, depth = start, 8
    for _ in range(rounds):
        block = _orthonormal(block)
        basis, images = [block], [adjoint(apply(block))]
        while len(basis) < depth:
            span = torch.cat(basis)
            extension = _extension(images[-1], span)[: block.shape[1] - len(span)]
            if not len(extension):  # the span is closed under AᵀA
                break
            basis.append(extension)
            images.append(adjoint(apply(extension)))
        span, image = torch.cat(basis), torch.cat(images)  # rows q of the basis, and AᵀA q
        squares, rotation = torch.linalg.eigh(span @ image.mT)
        squares, rotation = squares.flip(0)[: len(block)].clamp_min(0), rotation.flip(1)[:, : len(block)].mT
        block = rotation @ span
        residual = (rotation @ image - squares[:, None] * block)[:k].norm(dim=1)
        least = 1e-6 * squares[0] + torch.finfo(squares.dtype).tiny  # relative to σ², not σ₁²: small ones count too
        error = (residual / squares[:k].clamp_min(least)).max().item()
        if error <= tolerance:
            return squares[:k].sqrt(), block[:k]
    warnings.warn(
        f"the singular vectors are known to a relative residual of {error:.1e} only, after {rounds} rounds; "
        "singular values this close together need a larger k",
        UserWarning,
        stacklevel=3,
    )
    return squares[:k].sqrt(), block[:k]


def _extension(rows: Tensor, basis: Tensor) -> Tensor:
    """Orthonormal rows for the part of ``rows`` outside the span of ``basis``, one for each new dimension."""
    least = 1e-14 * rows.norm()
    for _ in range(2):  # once is not enough in floating point
        _, sizes, directions = torch.linalg.svd(rows - (rows @ basis.mT) @ basis, full_matrices=False)
        rows, least = directions[sizes > least], 0.5
    return rows


def _orthonormal(rows: Tensor) -> Tensor:
    return torch.linalg.qr(rows.mT).Q.mT

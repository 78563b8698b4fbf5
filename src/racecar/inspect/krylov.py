"""The largest singular values of an operator that is only known by what it does to a vector."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

Map = Callable[[Tensor], Tensor]
"""Vectors to vectors, one in each row."""


def top_singular(
    apply: Map, adjoint: Map, start: Tensor, k: int, tolerance: float = 1e-6, rounds: int = 300
) -> tuple[Tensor, Tensor]:
    """The k largest singular values of A and their right singular vectors, by a restarted block Krylov method.

    A block is used, not a single vector, because convolutions have their singular values in groups of equal ones.

    Args:
        apply: x (b, n) → x Aᵀ (b, m).
        adjoint: y (b, m) → y A (b, n).
        start: (b, n) with b > k (or b = n): random rows to start from; more rows converge in fewer rounds.
        k: how many.
        tolerance: residual ‖AᵀAv − σ²v‖ / σ₁² of every vector at which the search ends.
        rounds: restarts, after which a warning says how far the search got.

    Returns:
        values (k,), descending, and vectors (k, n), orthonormal.
    """
    block, depth = start, 8
    for _ in range(rounds):
        block = _orthonormal(block)
        basis, images = [block], [adjoint(apply(block))]
        while len(basis) < depth:
            known = torch.cat(basis)
            following = _beyond(images[-1], known)[: block.shape[1] - len(known)]
            if not len(following):  # the basis holds all that AᵀA makes of it
                break
            basis.append(following)
            images.append(adjoint(apply(following)))
        known, image = torch.cat(basis), torch.cat(images)  # rows q of the basis, and AᵀA q
        squares, rotation = torch.linalg.eigh(known @ image.mT)
        squares, rotation = squares.flip(0)[: len(block)].clamp_min(0), rotation.flip(1)[:, : len(block)].mT
        block = rotation @ known
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


def _beyond(rows: Tensor, known: Tensor) -> Tensor:
    """Orthonormal rows for what ``rows`` add to the span of ``known``: fewer than given where they add nothing."""
    least = 1e-14 * rows.norm()
    for _ in range(2):  # once is not enough in floating point
        _, sizes, directions = torch.linalg.svd(rows - (rows @ known.mT) @ known, full_matrices=False)
        rows, least = directions[sizes > least], 0.5
    return rows


def _orthonormal(rows: Tensor) -> Tensor:
    return torch.linalg.qr(rows.mT).Q.mT

"""How similar a layer's right singular vectors are to the data: as subspaces, as directions and as pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.inspect.lpips import Lpips
from racecar.inspect.ssim import ssim_pairwise
from racecar.support.precision import wide

CONTRASTS = ("minmax", "symmetric")


class Vectors(Protocol):
    """Protocol for the first argument of ``similarity``: an object with these two attributes, such as
    ``SingularVectors``."""

    @property
    def vectors(self) -> Tensor: ...  # (k, n)

    @property
    def images(self) -> Tensor | None: ...  # (k, C, H, W)


@dataclass(frozen=True, eq=False)
class Matches:
    """One similarity (or distance) between each of k vectors and each of N data, for the better sign of the vector.

    The paper's number for a network is ``mean``; its number for one datum ("d1 versus all v") is in ``datum_mean``.
    """

    values: Tensor
    """(k, N): similarity of each vector to each datum."""
    distance: bool
    """True for a distance, where the smallest value is the best one."""

    @property
    def mean(self) -> float:
        """Mean over all vectors and all data."""
        return float(self.values.mean())

    @property
    def vector_mean(self) -> Tensor:
        """Mean over all data for each vector, (k,)."""
        return self.values.mean(1)

    @property
    def vector_best(self) -> Tensor:
        """Value of each vector with the datum most similar to it, (k,)."""
        return self._best(1)

    @property
    def datum_mean(self) -> Tensor:
        """Mean over all vectors for each datum, (N,)."""
        return self.values.mean(0)

    @property
    def datum_best(self) -> Tensor:
        """Value of each datum with the vector most similar to it, (N,)."""
        return self._best(0)

    def _best(self, dim: int) -> Tensor:
        return self.values.amin(dim) if self.distance else self.values.amax(dim)

    def to_dict(self) -> dict[str, Any]:
        """The means and best values as a dict for JSON."""
        names = ("vector_mean", "vector_best", "datum_mean", "datum_best")
        return {"mean": self.mean} | {name: getattr(self, name).tolist() for name in names}


@dataclass(frozen=True, eq=False)
class Similarity:
    """How similar k vectors are to N data, by several measures; prints as a table."""

    angles: Tensor
    """Principal angles between the spans of vectors and data, in radians, smallest first; all 0 if the vectors span the
    whole space."""
    cosine: Matches
    """|cosine| between vectors and data; 0 where a vector or datum is 0."""
    ssim: Matches | None
    """SSIM between vectors and data as pictures; None if they are not pictures."""
    lpips: Matches | None
    """LPIPS distance between each singular vector and each input, both shown as pictures; None if no Lpips was given,
    or if the inputs are not pictures with one or three channels."""

    def to_dict(self) -> dict[str, Any]:
        """All numbers as a dict for JSON."""
        measures = {"cosine": self.cosine, "ssim": self.ssim, "lpips": self.lpips}
        return {"angles": self.angles.tolist()} | {
            name: None if matches is None else matches.to_dict() for name, matches in measures.items()
        }

    def __str__(self) -> str:
        k, n = self.cosine.values.shape
        degrees = torch.rad2deg(self.angles)
        lines = [
            f"similarity of {k} vectors and {n} data",
            f"{len(degrees)} principal angles: {degrees[0]:.2f}° to {degrees[-1]:.2f}°, mean {degrees.mean():.2f}°",
            f"{'':<10}{'all pairs':>12}{'best/vector':>14}{'best/datum':>14}",
        ]
        for name, matches in (("|cosine| ↑", self.cosine), ("SSIM ↑", self.ssim), ("LPIPS ↓", self.lpips)):
            cells = ["–"] * 3
            if matches is not None:
                numbers = (matches.mean, matches.vector_best.mean(), matches.datum_best.mean())
                cells = [f"{number:.3f}" for number in numbers]
            lines.append(f"{name:<10}{cells[0]:>12}{cells[1]:>14}{cells[2]:>14}")
        return "\n".join(lines)


@torch.no_grad()
def similarity(
    vectors: Tensor | Vectors,
    data: Tensor,
    *,
    lpips: Lpips | None = None,
    contrast: str = "minmax",
    lpips_size: int = 64,
) -> Similarity:
    """Measure how similar right singular vectors are to data.

    A singular vector has no sign and no brightness. Every comparison takes the better of its two signs; for SSIM and
    LPIPS both vectors and data are scaled to [0, 1] as ``contrast`` says, so that a vector ±c·d gives the same picture
    as the datum d. A constant picture becomes grey.

    Args:
        vectors: (k, n) or (k, *shape), or the result of ``singular_vectors``; all vectors for the paper's numbers.
        data: (N, *shape), or (N, n) if the vectors have a shape. A shape (C, H, W) of at least 3 × 3 pixels makes them
            pictures.
        lpips: the perceptual distance to use; None: no LPIPS.
        contrast: "minmax" (the smallest value of a picture becomes black and the largest white) or "symmetric" (0
            becomes middle grey, the largest magnitude black or white).
        lpips_size: for LPIPS, pictures whose shorter side has fewer pixels than this are enlarged to it (bilinear). 64
            is the size that LPIPS was calibrated on; AlexNet needs at least 31.

    SSIM has its usual window of 11 pixels, or the largest odd one that fits a smaller picture.
    """
    if contrast not in CONTRASTS:
        raise ValueError(f"contrast must be one of {CONTRASTS}, not {contrast!r}")
    v, d, shape = _flat(vectors, data)
    angles = principal_angles(v, d)
    v, d = v.double(), d.double()
    cosine, structure, perception = _cosines(v, d), None, None
    if len(shape) == 3 and min(shape[1:]) >= 3:
        v_pictures, d_pictures = (_pictures(x.view(-1, *shape), contrast) for x in (v, d))
        v_pictures = torch.cat([v_pictures, 1 - v_pictures])  # the vector and its negative
        window = min(11, (min(shape[1:]) - 1) // 2 * 2 + 1)
        structure = ssim_pairwise(v_pictures, d_pictures, window=window).view(2, len(v), len(d)).amax(0)
        if lpips is not None and shape[0] in (1, 3):
            v_pictures, d_pictures = (_enlarge(x, lpips_size) * 2 - 1 for x in (v_pictures, d_pictures))
            perception = lpips.pairwise(v_pictures, d_pictures).view(2, len(v), len(d)).amin(0)
    return Similarity(
        angles.cpu(),
        Matches(cosine.cpu(), distance=False),
        None if structure is None else Matches(structure.double().cpu(), distance=False),
        None if perception is None else Matches(perception.double().cpu(), distance=True),
    )


def principal_angles(a: Tensor, b: Tensor) -> Tensor:
    """Principal angles between the spans of the rows of two matrices, in radians, smallest first.

    Computed from cosines and sines together (Björck & Golub 1973; Knyazev & Argentati 2002): the cosine alone cannot
    tell an angle of 1e-8 from 0, nor the sine one from a right angle.

    Args:
        a: (p, n).
        b: (q, n).

    Returns:
        (min(rank a, rank b),), in float64. A rank counts the singular values above the matrix's rounding errors.
    """
    small, large = sorted((_basis(a), _basis(b)), key=lambda basis: basis.shape[1])
    inner = large.T @ small
    cosines = torch.linalg.svdvals(inner)
    sines = torch.linalg.svdvals(small - large @ inner).flip(0)
    return torch.atan2(sines, cosines)


def _basis(x: Tensor) -> Tensor:
    """An orthonormal basis (n, rank) of the span of the rows of x (rows, n)."""
    _, values, rows = torch.linalg.svd(x.double(), full_matrices=False)
    # The rounding of x itself is below ε ‖x‖_F ≤ ε √rank σ₁, that of the decomposition near ε₆₄ max(p, n) σ₁.
    rounding = torch.finfo(wide(x)).eps * len(values) ** 0.5
    return rows[values > values[0] * max(rounding, torch.finfo(torch.float64).eps * max(x.shape))].T


def _cosines(v: Tensor, d: Tensor) -> Tensor:
    """|cosine| (k, N) between vectors v (k, n) and data d (N, n)."""
    tiny = torch.finfo(v.dtype).tiny
    return (F.normalize(v, eps=tiny) @ F.normalize(d, eps=tiny).T).abs().clamp(max=1)


def _pictures(x: Tensor, contrast: str) -> Tensor:
    """x (N, C, H, W) scaled to [0, 1] picture by picture; x and c·x, c > 0, give the same."""
    low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
    if contrast == "symmetric":
        high = torch.maximum(high, -low)
        low = -high
    return torch.where(high > low, (x - low) / (high - low), 0.5).float()


def _enlarge(x: Tensor, size: int) -> Tensor:
    height, width = x.shape[2:]
    factor = size / min(height, width)
    if factor <= 1:
        return x
    return F.interpolate(x, size=(round(height * factor), round(width * factor)), mode="bilinear")


def _flat(vectors: Tensor | Vectors, data: Tensor) -> tuple[Tensor, Tensor, torch.Size]:
    """Vectors as (k, n), data as (N, n), and the shape of a vector before it was flattened."""
    v: Any = vectors
    if hasattr(v, "vectors"):
        v = v.vectors if v.images is None else v.images
    for name, x in (("vectors", v), ("data", data)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(x).__name__}")
        if x.dim() < 2 or x.numel() == 0:
            raise ValueError(f"{name} must be a tensor of one or more rows, (rows, *shape), not shape {tuple(x.shape)}")
        if x.is_complex():
            raise TypeError(f"{name} must be real, not {x.dtype}")
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{name} have NaN or infinite elements")
        if not bool(x.any()):
            raise ValueError(f"{name} are all zero: there is no direction to compare")
    v_shape, d_shape = v.shape[1:], data.shape[1:]
    if v_shape.numel() != d_shape.numel() or (v_shape != d_shape and min(len(v_shape), len(d_shape)) > 1):
        raise ValueError(
            f"each of the vectors has shape {tuple(v_shape)} and each datum {tuple(d_shape)}: they must agree "
            "(for the kernels of a convolution, cut the data into patches of their size)"
        )
    shape = max(v_shape, d_shape, key=len)
    return v.flatten(1), data.to(v.device).flatten(1), shape

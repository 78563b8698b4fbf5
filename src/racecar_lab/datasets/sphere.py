"""The mutual-information task, made from its rule: binary patterns on a sphere, judged by their power spectrum.

Twelve points stand evenly on a sphere, as the corners of an icosahedron. A pattern switches each of them on or off:
4096 patterns. The label depends on a function of the pattern that no rotation changes, its spherical-harmonics power
spectrum (Kazhdan et al. 2003), through a soft threshold: p(y = 1 | x) = 1 / (1 + exp(−γ (f(x) − θ))). θ is set so that
p(y = 1) ≈ 0.5, γ so that I(X;Y) = 0.99 bits (Shwartz-Ziv & Tishby 2017).

Rotations of the icosahedron take the patterns to each other in 96 orbits; with reflections, which leave the spectrum
alone as well, in 82. Some of these orbits have the same spectrum: there are 64 different ones, which is the number that
the paper gives for the orbits.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

DEGREES = 3
"""Number of lowest degrees of spherical harmonics on which the labels depend: 0, 1 and 2. A small net can learn a
threshold on such a coarse structure."""
BITS = 0.99
"""Mutual information I(X;Y) of patterns and labels, in bits."""


@cache
def corners() -> Tensor:
    """The corners of the icosahedron, (12, 3) unit vectors."""
    golden = (1 + 5**0.5) / 2
    signs = [(y, z) for y in (-1.0, 1.0) for z in (-1.0, 1.0)]
    flat = torch.tensor([(0.0, y, z * golden) for y, z in signs], dtype=torch.float64)
    return torch.nn.functional.normalize(torch.cat([flat.roll(shift, 1) for shift in range(3)]))


def patterns() -> Tensor:
    """All patterns of twelve points that are on, 1, or off, 0: (4096, 12)."""
    return (torch.arange(4096).unsqueeze(1) >> torch.arange(12)) & 1


def power_spectrum(x: Tensor, degrees: int = DEGREES) -> Tensor:
    """Power of each degree l, Σ_m |Σ_i x_i Y_lm(p_i)|², of patterns (N, 12) → (N, degrees).

    By the addition theorem it is (2l + 1) / 4π · Σ_ij x_i x_j P_l(p_i · p_j).
    """
    x = x.double()
    cosine = corners() @ corners().mT
    current, following = torch.ones_like(cosine), cosine  # P_l and P_(l+1)
    powers = []
    for degree in range(degrees):
        powers.append((2 * degree + 1) / (4 * torch.pi) * ((x @ current) * x).sum(1))
        after = ((2 * degree + 3) * cosine * following - (degree + 1) * current) / (degree + 2)
        current, following = following, after
    return torch.stack(powers, 1)


def rule(x: Tensor) -> Tensor:
    """f(x), the function of a pattern on which its label depends: the sum of the power spectrum over the lowest
    degrees; (N, 12) → (N,)."""
    return power_spectrum(x).sum(1)


@cache
def probabilities() -> Tensor:
    """p(y = 1 | x) of all patterns, float64 (4096,), with p(y = 1) ≈ 0.5 and I(X;Y) = 0.99 bits."""
    f = rule(patterns())
    levels = f.mul(1e9).round().unique() / 1e9  # patterns of one spectrum share a level; θ lies between two levels
    between = (levels[1:] + levels[:-1]) / 2
    theta = min(between.tolist(), key=lambda t: abs(float((f > t).double().mean()) - 0.5))
    low, high = 0.0, 1e6
    for _ in range(100):  # the sharper the threshold, the more bits
        gamma = (low + high) / 2
        p = torch.sigmoid(gamma * (f - theta))
        low, high = (gamma, high) if information(p) < BITS else (low, gamma)
    return p


def information(p: Tensor) -> float:
    """I(X;Y) in bits, for equally likely patterns with these probabilities of label 1."""

    def entropy(q: Tensor) -> Tensor:
        return -(torch.special.xlogy(q, q) + torch.special.xlogy(1 - q, 1 - q)) / torch.log(q.new_tensor(2.0))

    return float(entropy(p.mean()) - entropy(p).mean())


def load(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Patterns (4096, 12) as 0 and 1, and their labels (4096,), drawn once for this seed."""
    uniform = torch.rand(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return patterns().float(), (uniform < probabilities()).long()

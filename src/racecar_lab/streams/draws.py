"""Random numbers as a function of (key, number, position): SplitMix64 (Steele et al. 2014), used as a counter.

No generator, so no state to keep: nets that are trained as one stack draw what each of them draws alone, on any device,
and a step that draws never waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # int64 wraps around as the unsigned arithmetic of the algorithm does
INVERSE = pow(GOLDEN, -1, 2**64) - 2**64
"""1 / GOLDEN modulo 2⁶⁴. (stream / GOLDEN + i) · GOLDEN is stream + i · GOLDEN, but compiled, i · GOLDEN alone would be
an index of 32 bits."""
FIRST, SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
FRACTION = 24
"""Bits of a uniform number, so that float32 holds it exactly."""


def bits(key: Tensor, number: Tensor | int, count: int) -> Tensor:
    """64 random bits each, as int64, shape (count,).

    Args:
        key: of the net, int64, shape ().
        number: of the draw; another number gives other bits.
    """
    stream = _mixed(_mixed(key) + (torch.zeros_like(key) + number) * GOLDEN)
    return _mixed((stream * INVERSE + torch.arange(1, count + 1, device=key.device)) * GOLDEN)


def uniform(key: Tensor, number: Tensor | int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Uniform numbers in (−1, 1), of this shape."""
    drawn = bits(key, number, math.prod(shape))
    return (2 * _fraction(drawn, 64 - FRACTION) - 1).to(dtype).reshape(shape)


def normal(key: Tensor, number: Tensor | int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Normal numbers of this shape, by Box and Muller's formula."""
    drawn = bits(key, number, math.prod(shape))
    radius = (-2 * _fraction(drawn, 64 - FRACTION).log()).sqrt()
    angle = 2 * math.pi * _fraction(drawn, 64 - 2 * FRACTION)
    return (radius * angle.cos()).to(dtype).reshape(shape)


def _fraction(drawn: Tensor, lowest: int) -> Tensor:
    """The bits from this one on as a number between 0 and 1, neither of them."""
    return ((drawn >> lowest) & (2**FRACTION - 1)).double().add(0.5) / 2**FRACTION


def _mixed(z: Tensor) -> Tensor:
    z = (z ^ _shifted(z, 30)) * FIRST
    z = (z ^ _shifted(z, 27)) * SECOND
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, places: int) -> Tensor:
    """To the right, zeros coming in: int64's own shift repeats the sign."""
    return (z >> places) & (2 ** (64 - places) - 1)

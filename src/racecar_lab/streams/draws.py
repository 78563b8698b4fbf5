"""Random numbers as a pure function of (key, number, position): SplitMix64 (Steele et al. 2014), used as a counter.

There is no generator and so no state: a net gets the same numbers whether it is trained alone or in a stack, on any
device, and a training step that draws numbers never waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # int64 wraps around as the unsigned arithmetic of the algorithm does
INVERSE = pow(GOLDEN, -1, 2**64) - 2**64
"""1 / GOLDEN modulo 2⁶⁴. ``bits`` computes stream + i · GOLDEN as (stream / GOLDEN + i) · GOLDEN, because torch.compile
would take i · GOLDEN alone for an index, and compute it in 32 bits."""
FIRST, SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64
FRACTION = 24
"""Number of bits in a uniform number, so that float32 holds it exactly."""


def bits(key: Tensor, number: Tensor | int, count: int) -> Tensor:
    """``count`` random int64 numbers of 64 bits each, shape (count,).

    Args:
        key: the net's random key, int64, shape ().
        number: the number of the draw; every number gives different bits.
    """
    stream = _mixed(_mixed(key) + (torch.zeros_like(key) + number) * GOLDEN)
    return _mixed((stream * INVERSE + torch.arange(1, count + 1, device=key.device)) * GOLDEN)


def uniform(key: Tensor, number: Tensor | int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Random numbers of the given shape, uniform in (−1, 1).

    Args:
        key: the net's random key, int64, shape ().
        number: the number of the draw; every number gives different random numbers.
    """
    integers = bits(key, number, math.prod(shape))
    return (2 * _fraction(integers, 64 - FRACTION) - 1).to(dtype).reshape(shape)


def normal(key: Tensor, number: Tensor | int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Random numbers of the given shape from the standard normal distribution, by Box and Muller's formula.

    Args:
        key: the net's random key, int64, shape ().
        number: the number of the draw; every number gives different random numbers.
    """
    integers = bits(key, number, math.prod(shape))
    radius = (-2 * _fraction(integers, 64 - FRACTION).log()).sqrt()
    angle = 2 * math.pi * _fraction(integers, 64 - 2 * FRACTION)
    return (radius * angle.cos()).to(dtype).reshape(shape)


def _fraction(integers: Tensor, lowest: int) -> Tensor:
    """``FRACTION`` bits of each integer, from bit ``lowest`` on, as a number strictly between 0 and 1."""
    return ((integers >> lowest) & (2**FRACTION - 1)).double().add(0.5) / 2**FRACTION


def _mixed(z: Tensor) -> Tensor:
    """SplitMix64's output function: every bit of the result depends on all bits of ``z``."""
    z = (z ^ _shifted(z, 30)) * FIRST
    z = (z ^ _shifted(z, 27)) * SECOND
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, places: int) -> Tensor:
    """A right shift that fills in zeros, as for unsigned integers: int64's own shift repeats the sign bit."""
    return (z >> places) & (2 ** (64 - places) - 1)

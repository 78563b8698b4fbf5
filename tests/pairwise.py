"""Combinations of three lists that contain every pair of values, fewer than the full product."""

from collections.abc import Sequence
from typing import Any


def pairwise(first: Sequence[Any], second: Sequence[Any], third: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
    """All pairs of the first two, each with one value of the third, which moves on along both.

    Where neither of the first two is shorter than the third, all pairs with the third are there, too.
    """
    return [(a, b, third[(i + j) % len(third)]) for i, a in enumerate(first) for j, b in enumerate(second)]

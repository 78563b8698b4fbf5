"""How tensors lie in memory."""

from __future__ import annotations

from torch import Tensor


def memory_order(x: Tensor) -> tuple[int, ...]:
    """Dimensions of x (N, C, …) as they lie in memory, the innermost last: channels may.

    Sums and copies that go along memory are many times as fast; a compiler that decides on a layout later than on the
    order of a sum (inductor, 2.11) does not see to it by itself.
    """
    return (0, *range(2, x.dim()), 1) if channels_last(x) else tuple(range(x.dim()))


def channels_last(x: Tensor) -> bool:
    """Whether the channels of x (N, C, …) lie innermost."""
    return x.dim() in (4, 5) and x.stride(1) == 1 < x.stride(-1)

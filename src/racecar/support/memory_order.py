"""The order of a tensor's dimensions in memory."""

from __future__ import annotations

from torch import Tensor


def memory_order(x: Tensor) -> tuple[int, ...]:
    """The dimensions of x (N, C, …) in the order in which they lie in memory, the innermost last.

    Sums and copies along memory are many times as fast. torch.compile does not see to it by itself: its inductor (2.11)
    chooses the order of a sum before it chooses the layout.
    """
    return (0, *range(2, x.dim()), 1) if channels_last(x) else tuple(range(x.dim()))


def channels_last(x: Tensor) -> bool:
    """Whether the channels of x (N, C, …) are its innermost dimension in memory."""
    return x.dim() in (4, 5) and x.stride(1) == 1 < x.stride(-1)

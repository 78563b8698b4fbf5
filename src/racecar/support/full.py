"""Whether an error says that memory was full."""

from __future__ import annotations

import torch

_TOLD = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "OutOfMemoryError",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
)


def is_full(error: BaseException | None) -> bool:
    """Whether a device that had no memory left is behind an error: torch, CUDA and cuBLAS each say it in their way."""
    if error is None:
        return False
    kinds = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return kinds or any(one in str(error) for one in _TOLD) or is_full(error.__cause__)

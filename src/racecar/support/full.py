"""Recognise errors of a full memory."""

from __future__ import annotations

import torch

_MESSAGES = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "OutOfMemoryError",
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
)


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, says that memory was full; torch, CUDA and cuBLAS word it differently."""
    if error is None:
        return False
    kinds = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return kinds or any(one in str(error) for one in _MESSAGES) or is_full(error.__cause__)

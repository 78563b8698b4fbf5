"""How much memory a step needs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from racecar.bench.timing import Call

T = TypeVar("T")


def held(cuda: bool) -> int:
    """Bytes of all tensors on the device."""
    if not cuda:
        return 0
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def peak(step: Call, clear: Call, others: int, cuda: bool) -> int | None:
    """Most bytes on the device during a step that is not captured: model, inputs, activations and gradients.

    Args:
        step: one step.
        clear: drops the gradients.
        others: bytes that other kinds of steps hold; they are not counted.
        cuda: None is returned without it: the CPU's allocator keeps no such count.
    """
    if not cuda:
        return None
    clear()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    clear()
    return torch.cuda.max_memory_allocated() - others


def patiently(work: Callable[[], T], clear: Call, patience: float) -> T:
    """``work()``, tried again for so many seconds while the device has no memory left: others may hold it."""
    until = time.monotonic() + patience
    while True:
        try:
            return work()
        except torch.OutOfMemoryError:
            if time.monotonic() >= until:
                raise
        clear()
        torch.cuda.empty_cache()
        time.sleep(1)

"""How much memory a step needs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from racecar.bench.timing import Call
from racecar.support.full import is_full

T = TypeVar("T")


def held(cuda: bool) -> int:
    """Bytes of all tensors on the device."""
    if not cuda:
        return 0
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def settle(cuda: bool) -> None:
    """Let the libraries take the memory that they keep: cuBLAS takes some at its first product, in the forward and in
    the backward pass, which would count for the first kind of step alone."""
    if cuda:
        for dtype in (torch.float32, torch.bfloat16):
            layer = torch.nn.Linear(8, 8, device="cuda", dtype=dtype)
            layer(torch.ones(8, 8, device="cuda", dtype=dtype, requires_grad=True)).sum().backward()


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
        except Exception as error:
            if time.monotonic() >= until or not is_full(error):
                raise
        clear()
        torch.cuda.empty_cache()
        time.sleep(1)

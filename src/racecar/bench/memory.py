"""How much memory a step needs on a GPU. (The allocator of a CPU keeps no such count.)"""

from __future__ import annotations

import gc

import torch

from racecar.bench.timing import Step


def allocated() -> int:
    """Bytes of all tensors on the device."""
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def warm_up() -> None:
    """Let cuBLAS allocate the workspace that it keeps. It does so at the first product of the forward and of the
    backward pass, and would count for the first step alone."""
    for dtype in (torch.float32, torch.bfloat16):
        layer = torch.nn.Linear(8, 8, device="cuda", dtype=dtype)
        layer(torch.ones(8, 8, device="cuda", dtype=dtype, requires_grad=True)).sum().backward()


def peak(step: Step, clear_gradients: Step) -> int:
    """Most bytes on the device during a step that is not captured: model, inputs, activations and gradients."""
    clear_gradients()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    clear_gradients()
    return torch.cuda.max_memory_allocated()

"""The arithmetic floor of the reverse pass: what a step would cost if only multiplications counted."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from racecar.bench.workload import Workload
from racecar.racecar import Racecar

SAMPLES = 2
"""A small batch is counted, as the ratio does not depend on it; but for wide layers (`racecar.reverse.short_cut`)."""


def flops(workload: Workload) -> tuple[int, int]:
    """Floating-point operations per sample of a plain step and of one with the exact racecar loss, backward included.

    Products of matrices and convolutions are counted; norms, activations and sums are not.
    """
    args, kwargs = workload.few(SAMPLES)
    rr = Racecar(workload.model, kwargs or args)
    samples = min(SAMPLES, workload.batch)
    buffers = [(buffer, buffer.clone()) for buffer in workload.model.buffers()]

    def plain() -> Tensor:
        return workload.task(workload.model(*args, **kwargs))

    def ours() -> Tensor:
        output, term = rr(*args, **kwargs)
        return workload.task(output) + term

    try:
        return count(plain) // samples, count(ours) // samples
    finally:
        workload.clear()
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def count(loss: Callable[[], Tensor]) -> int:
    """Floating-point operations of a loss and its gradients."""
    with FlopCounterMode(display=False) as counter:
        loss().backward()
    return counter.get_total_flops()


def floor(plain: int, exact: int, share: float) -> float:
    """Least ratio to the plain step.

    Args:
        plain, exact: operations of a plain step and of one whose reverse pass sees the whole batch.
        share: of the samples, over all steps, that the reverse pass sees.
    """
    return 1 + share * (exact / plain - 1)

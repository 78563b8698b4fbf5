"""The floor of a step's cost: its ratio to the plain step if only products of matrices and convolutions took time."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from racecar.bench.kinds import PLAIN, Loss, ReverseKind
from racecar.bench.workload import Workload

SAMPLES = 2
"""Batch size with which operations are counted: two, to be quick. Operations per sample are the same for every batch
size, except in wide layers, where a small batch takes the shorter of two ways (`racecar.reverse.short_cut`)."""


def flops(workload: Workload) -> tuple[int, int]:
    """Floating-point operations per sample of the plain step and of the one whose reverse pass sees the whole batch.

    Forward and backward pass are counted; norms, activations and sums are not.
    """
    samples, few = min(SAMPLES, workload.batch), workload.first_samples(SAMPLES)
    few.options = replace(few.options, half=False)  # whose attention every torch can count
    buffers = [(buffer, buffer.clone()) for buffer in workload.model.buffers()]
    try:
        plain, whole = (count(kind.loss(few)) for kind in (PLAIN, ReverseKind(fraction=1.0)))
        return plain // samples, whole // samples
    finally:
        workload.clear_gradients()
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def count(loss: Loss) -> int:
    """Floating-point operations of a loss and of its gradients."""
    with FlopCounterMode(display=False) as counter:
        loss().backward()
    return counter.get_total_flops()


def floor(plain: int, whole: int, share: float) -> float:
    """Least ratio to the plain step.

    Args:
        plain, whole: operations of the plain step and of one whose reverse pass sees the whole batch.
        share: part of all samples of all steps that the reverse pass sees.
    """
    return 1 + share * (whole / plain - 1)

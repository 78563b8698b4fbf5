"""Slices of the batch whose gradient is cheap in time and memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.plan.slices import cut
from racecar.rules.batch_dim import BatchDim
from racecar.support.torch_private import run_in_turn_of


def part_of(whole: Tensor, where: BatchDim, size: int, samples: int, own: bool) -> Tensor:
    """The first ``samples`` of the ``size`` samples of a tensor, in eager mode.

    Args:
        whole: the tensor of the whole batch.
        where: its batch dimension.
        own: whether the slice gets memory of its own: a view would keep the whole tensor until the backward pass. A d_m
            is kept anyway, a tensor at which a reverse pass starts may not be.
    """
    if where == BatchDim(0) and whole.dim() == 4 and not whole.is_contiguous():
        # The gradient of a view would not be channels last any more, which slows convolutions down.
        part = FirstRows.apply(whole, cut(whole.detach(), where, size, samples))
    else:
        part = cut(whole, where, size, samples)
        part = part.clone() if own else part
    _in_turn(part, whole)
    return part


def _in_turn(part: Tensor, whole: Tensor) -> None:
    """Let the backward pass pad the gradient of a slice only when it has come to the whole tensor.

    Autograd runs first the nodes that were made last. It would pad the gradients of all slices at the beginning, and
    keep them all, each as large as the whole tensor, until their turn comes."""
    whole_node, node = whole.grad_fn, part.grad_fn
    while whole_node is not None and node is not None and node is not whole_node:
        run_in_turn_of(node, whole_node)
        node = node.next_functions[0][0]


class FirstRows(torch.autograd.Function):
    """Connects the first samples of a tensor, computed elsewhere, with the tensor: their gradient, padded with 0, is
    the tensor's."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Tensor, rows: Tensor) -> Tensor:
        return rows.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        tensor, rows = inputs
        ctx.missing = len(tensor) - len(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        return F.pad(gradient, (0, 0) * (gradient.dim() - 1) + (0, ctx.missing)), None

"""The first samples of a value, with a gradient that costs little."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.plan.slices import cut
from racecar.rules.batch_dim import BatchDim
from racecar.support.torch_private import run_in_turn_of


def part_of(whole: Tensor, where: BatchDim, size: int, samples: int, own: bool) -> Tensor:
    """The first samples of a value, in eager mode.

    Args:
        own: in memory of their own. A d is kept for backward anyway; what a reverse pass starts from may not be, and a
            view would keep it.
    """
    if where == BatchDim(0) and whole.dim() == 4 and not whole.is_contiguous():
        # Channels last, which the gradient of a view would forget: that costs convolutions dearly.
        part = FirstRows.apply(whole, cut(whole.detach(), where, size, samples))
    else:
        part = cut(whole, where, size, samples)
        part = part.clone() if own else part
    _in_turn(part, whole)
    return part


def _in_turn(part: Tensor, whole: Tensor) -> None:
    """Let the gradient of a part be padded when backward has come to the whole, as if it had been cut off at once.

    Autograd takes first what was made last: the gradients of all parts would be padded before anything else, and then
    wait together, as large as all wholes."""
    made, node = whole.grad_fn, part.grad_fn
    while made is not None and node is not None and node is not made:
        run_in_turn_of(node, made)
        node = node.next_functions[0][0]


class FirstRows(torch.autograd.Function):
    """The first samples of a tensor, whose values somebody else has found; the gradient is the tensor's own."""

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

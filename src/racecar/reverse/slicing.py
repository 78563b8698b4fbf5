"""Slices of the batch: the first samples of every tensor that the reverse pass needs, with a gradient that is cheap.

The two slicers do the same in eager mode and under torch.compile, where different things are cheap.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.plan.slices import cut
from racecar.reverse.needs import Needs
from racecar.reverse.values import ForwardValues
from racecar.rules.batch_dim import BatchDim
from racecar.rules.norm import first_rows, has_batch_statistics
from racecar.rules.operation import Operation
from racecar.rules.roles import Role
from racecar.support.torch_private import run_in_turn_of


class BatchSlice(NamedTuple):
    """The samples that a reverse pass sees: the first ``samples`` of a batch of ``size``."""

    size: int
    samples: int


class Slicer(Protocol):
    """Cuts slices through which gradients flow."""

    def __call__(self, value: int, tensor: Tensor, where: BatchDim) -> Tensor:
        """The slice of the tensor of a value, whose batch dimension is ``where``."""


class EagerSlicer:
    """Cuts slices in eager mode.

    Args:
        needs: what the reverse pass needs: where it starts, slices get memory of their own.
        part: the slice of the batch.
    """

    def __init__(self, needs: Needs, part: BatchSlice) -> None:
        self.needs, self.part = needs, part

    def __call__(self, value: int, tensor: Tensor, where: BatchDim) -> Tensor:
        if where == BatchDim(0) and tensor.dim() == 4 and not tensor.is_contiguous():
            # The gradient of a view would not be channels last any more, which slows convolutions down.
            part = FirstRows.apply(tensor, cut(tensor.detach(), where, *self.part))
        else:
            part = cut(tensor, where, *self.part)
            part = part.clone() if value in self.needs.unkept else part  # a view would keep the whole tensor
        _pad_gradient_late(part, tensor)
        return part


class CompiledSlicer:
    """Cuts slices while torch.compile traces. For a view of a tensor the compiler would keep the whole tensor.

    Args:
        needs: what the reverse pass needs.
        values: the tensors of the forward pass.
        part: the slice of the batch.
    """

    def __init__(self, needs: Needs, values: ForwardValues, part: BatchSlice) -> None:
        self.needs, self.values, self.part = needs, values, part
        self._rows: dict[int, Tensor] = {}
        """Value → its first samples, in memory of their own."""
        for value in needs.values:
            if value in needs.unkept and values.batch(value) == BatchDim(0):
                users = values.layer_graph.graph.users.get(value, ())  # a view of it, as of a qkv, keeps it anyway
                if any(op.role is not Role.SHAPE for op in users) and self._batch_norm(value) is None:
                    tensor = values.tensor(value).detach()
                    rows = torch.arange(tensor.shape[0] // part.size * part.samples, device=tensor.device)
                    self._rows[value] = tensor.index_select(0, rows)  # the compiler would replace a clone by the view

    def __call__(self, value: int, tensor: Tensor, where: BatchDim) -> Tensor:
        rows = self._rows.get(value)
        if rows is None and where == BatchDim(0) and value in self.needs.starts:
            rows = self._normed_rows(value)
        return cut(tensor, where, *self.part) if rows is None else FirstRows.apply(tensor, rows)

    def _normed_rows(self, value: int) -> Tensor | None:
        """The first samples of a batch norm's output, computed from its input: for a slice of the output the compiler
        would write the whole of it to memory. None for other values."""
        norm = self._batch_norm(value)
        if norm is None:
            return None
        x = self.values.tensor(self.values.layer_graph.graph.maker[value].source).detach()
        return first_rows(norm, x, cut(x, BatchDim(0), *self.part))

    def _batch_norm(self, value: int) -> Operation | None:
        """The batch norm that computed a value with the statistics of its input; None for other values."""
        op = self.values.layer_graph.graph.maker.get(value)
        if op is None or op.role is not Role.NORM or op.members:
            return None
        operation = op.operation(self.values.calls)
        return operation if has_batch_statistics(operation) else None


def _pad_gradient_late(part: Tensor, whole: Tensor) -> None:
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

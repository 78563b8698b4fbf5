"""A slice of the batch: the first samples of every tensor that the way back needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Size, Tensor
from torch.nn import functional as F

from racecar.batch import Batch
from racecar.graph import Graph
from racecar.rules.registry import Operation


def cut(tensor: Tensor, batch: Batch, size: int, samples: int) -> Tensor:
    """The first ``samples`` of ``size`` samples."""
    dim, outer = batch.dim, batch.outer
    if outer == 1:
        return tensor.narrow(dim, 0, tensor.shape[dim] // size * samples)
    parts = tensor.unflatten(dim, (outer, size, -1))
    return parts.narrow(dim + 1, 0, samples).flatten(dim, dim + 2)


def cut_shape(shape: Size, where: Batch | None, size: int, samples: int) -> Size:
    """The shape of the first samples of a value."""
    if where is None:
        return shape
    rows = shape[where.dim] // size * samples
    return torch.Size((*shape[: where.dim], rows, *shape[where.dim + 1 :]))


def cut_constants(operation: Operation, shape: Size, where: Batch, size: int, samples: int) -> None:
    """Constants that hold a value per sample are cut as the data is."""

    def fit(one: Any) -> Any:
        if isinstance(one, Tensor):
            dim = where.dim - len(shape) + one.dim()  # constants are aligned at their last dimension
            if dim >= 0 and one.shape[dim] == shape[where.dim]:
                return cut(one, where._replace(dim=dim), size, samples)
        elif type(one) in (tuple, list):  # what is put together
            return type(one)(fit(part) for part in one)
        return one

    operation.args = tuple(fit(one) for one in operation.args)
    operation.kwargs = {name: fit(one) for name, one in operation.kwargs.items()}


def per_sample(graph: Graph, batch: Mapping[int, Batch | None], size: int) -> frozenset[int]:
    """Operations without a rule, by ordinal, whose constants have to be cut: the others work on one sample as they are.

    A weight may have as many rows as there are samples by chance.
    """
    found = set()
    for op in graph.ops:
        before, after = (batch.get(op.source), batch.get(op.outputs[0])) if op.kind.endswith("(vjp)") else (None, None)
        if before is None or after is None:
            continue
        one = cut(torch.zeros_like(graph.trace.tensor(op.source)), before, size, 1)
        try:
            shape = op.bind(graph.call(op.ordinal))(one).shape
        except (RuntimeError, ValueError, IndexError):
            shape = None
        if shape != cut_shape(graph.trace.tensor(op.outputs[0]).shape, after, size, 1):
            found.add(op.ordinal)
    return frozenset(found)


def part_of(whole: Tensor, where: Batch, size: int, samples: int, own: bool) -> Tensor:
    """The first samples of a value, in eager mode.

    Args:
        own: in memory of their own. A d is kept for backward anyway; what a way back starts from may not be, and a view
            would keep it.
    """
    if where == Batch(0) and whole.dim() == 4 and not whole.is_contiguous():
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
        node._set_sequence_nr(made._sequence_nr())  # type: ignore[attr-defined]
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

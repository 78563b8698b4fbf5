"""Slices of the batch: the first samples of tensors, shapes and constants that the reverse pass needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Size, Tensor

from racecar.plan.graph import Graph
from racecar.rules.batch_dim import BatchDim
from racecar.rules.operation import Operation


def cut(tensor: Tensor, batch: BatchDim, size: int, samples: int) -> Tensor:
    """The part of a tensor that belongs to the first ``samples`` of ``size`` samples; ``batch``: where they run."""
    dim, outer = batch.dim, batch.outer
    if outer == 1:
        return tensor.narrow(dim, 0, tensor.shape[dim] // size * samples)
    parts = tensor.unflatten(dim, (outer, size, -1))
    return parts.narrow(dim + 1, 0, samples).flatten(dim, dim + 2)


def cut_shape(shape: Size, where: BatchDim | None, size: int, samples: int) -> Size:
    """The shape of ``cut`` of a tensor of this shape; ``where``: where the samples run, None if nowhere."""
    if where is None:
        return shape
    rows = shape[where.dim] // size * samples
    return torch.Size((*shape[: where.dim], rows, *shape[where.dim + 1 :]))


def cut_constants(operation: Operation, shape: Size, where: BatchDim, size: int, samples: int) -> None:
    """Cut, in place, those constants of an operation that have one value per sample.

    Args:
        shape: of the operation's output.
        where: where the samples run in the output.
    """

    def cut_argument(arg: Any) -> Any:
        if isinstance(arg, Tensor):
            dim = where.dim - len(shape) + arg.dim()  # constants are broadcast, aligned at the last dimension
            if dim >= 0 and arg.shape[dim] == shape[where.dim]:
                return cut(arg, where._replace(dim=dim), size, samples)
        elif type(arg) in (tuple, list):  # the tensors of a concatenation
            return type(arg)(cut_argument(part) for part in arg)
        return arg

    operation.args = tuple(cut_argument(arg) for arg in operation.args)
    operation.kwargs = {name: cut_argument(arg) for name, arg in operation.kwargs.items()}


def per_sample(graph: Graph, batch: Mapping[int, BatchDim | None], size: int) -> frozenset[int]:
    """The ordinals of the operations whose constant arguments may have one value per sample. If the reverse pass sees a
    slice of the batch, such constants are sliced, too.

    An operation that is undone by a vector-Jacobian product is tried on a single sample with its constants as they are:
    it is among these only if that fails, because a weight can have as many rows as there are samples by chance.
    """
    ordinals = {op.ordinal for op in graph.ops if op.role.keeps_layout or op.rule.constants_per_sample}
    for op in graph.ops:
        before, after = (batch.get(op.source), batch.get(op.outputs[0])) if op.rule.by_vjp else (None, None)
        if before is None or after is None:
            continue
        sample = cut(torch.zeros_like(graph.trace.tensor(op.source)), before, size, 1)
        try:
            shape = op.bind(graph.call(op.ordinal))(sample).shape
        except (RuntimeError, ValueError, IndexError):
            shape = None
        if shape != cut_shape(graph.trace.tensor(op.outputs[0]).shape, after, size, 1):
            ordinals.add(op.ordinal)
    return frozenset(ordinals)

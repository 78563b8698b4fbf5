"""A slice of the batch: the first samples of every tensor that the reverse pass needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Size, Tensor

from racecar.plan.graph import Graph
from racecar.rules.batch_dim import BatchDim
from racecar.rules.operation import Operation


def cut(tensor: Tensor, batch: BatchDim, size: int, samples: int) -> Tensor:
    """The first ``samples`` of ``size`` samples."""
    dim, outer = batch.dim, batch.outer
    if outer == 1:
        return tensor.narrow(dim, 0, tensor.shape[dim] // size * samples)
    parts = tensor.unflatten(dim, (outer, size, -1))
    return parts.narrow(dim + 1, 0, samples).flatten(dim, dim + 2)


def cut_shape(shape: Size, where: BatchDim | None, size: int, samples: int) -> Size:
    """The shape of the first samples of a value."""
    if where is None:
        return shape
    rows = shape[where.dim] // size * samples
    return torch.Size((*shape[: where.dim], rows, *shape[where.dim + 1 :]))


def cut_constants(operation: Operation, shape: Size, where: BatchDim, size: int, samples: int) -> None:
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


def per_sample(graph: Graph, batch: Mapping[int, BatchDim | None], size: int) -> frozenset[int]:
    """Operations, by ordinal, whose constants have to be cut with the samples, where they hold a value for each.

    Of those without a rule, only what does not work on one sample as it is: a weight may have as many rows as there are
    samples by chance.
    """
    found = {op.ordinal for op in graph.ops if op.role.keeps_layout or op.kind == "cat"}
    for op in graph.ops:
        before, after = (batch.get(op.source), batch.get(op.outputs[0])) if op.by_vjp else (None, None)
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

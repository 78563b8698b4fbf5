"""The shapes and constants of a planned pass for a batch of another size."""

from __future__ import annotations

from typing import Any

from torch import Size, Tensor

from racecar.plan.graph import Op
from racecar.plan.joins import shape_in_words
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.slices import cut_shape
from racecar.rules.operation import Operation


class OtherBatch:
    """The shapes and constants of a planned pass for a batch of another size.

    Args:
        layer_graph: of the pass.
        value: the value whose tensor tells the size of the batch.
        tensor: that tensor.
    """

    def __init__(self, layer_graph: LayerGraph, value: int, tensor: Tensor) -> None:
        self.layer_graph, self.planned = layer_graph, layer_graph.batch_size
        shape, where = layer_graph.shapes[value], layer_graph.batch.get(value)
        self.samples = self.planned
        """The number of samples in the batch."""
        if where is not None and tensor.dim() == len(shape):
            self.samples = max(1, tensor.shape[where.dim] // max(1, shape[where.dim] // self.planned))

    def shape(self, value: int) -> Size:
        """The shape of a value in this batch."""
        planned, where = self.layer_graph.shapes[value], self.layer_graph.batch.get(value)
        if self.samples == self.planned:
            return planned
        if where is None:
            raise ValueError(
                f"the batch cannot be followed through {self.layer_graph.around(value)}: y must have as many samples "
                f"as the example inputs, {self.planned}"
            )
        if self.planned == 1 and planned[where.dim] != 1:
            raise ValueError(
                "the plan was made with a single sample, by which the batch cannot be told from other dimensions: give "
                "Racecar two or more samples as example inputs"
            )
        return cut_shape(planned, where, self.planned, self.samples)

    def check(self, value: int, tensor: Tensor, name: str) -> None:
        """Raise if a tensor that the user gave cannot be that of a value."""
        if tensor.shape != self.shape(value):
            here = "" if self.samples == self.planned else f", here with N = {self.samples}"
            expected = shape_in_words(self.layer_graph, value)
            raise ValueError(f"{name}: the shape is {tuple(tensor.shape)}, but it must be {expected}{here}")

    def fit(self, op: Op, operation: Operation) -> None:
        """Fit constants of an operation that have a value for each sample, if these are all equal."""
        if self.samples != self.planned and op.ordinal in self.layer_graph.per_sample:
            members = zip(op.members, operation.members, strict=True) if op.members else ((op, operation),)
            for member, its_operation in members:
                its_operation.args = self._fitted(member, its_operation.args)
                its_operation.kwargs = {name: self._fitted(member, arg) for name, arg in its_operation.kwargs.items()}

    def _fitted(self, op: Op, arg: Any) -> Any:
        """An argument of an operation, with one row in place of one for each sample."""
        if type(arg) in (tuple, list):
            return type(arg)([self._fitted(op, part) for part in arg])
        shape, where = self.layer_graph.shapes[op.outputs[0]], self.layer_graph.batch.get(op.outputs[0])
        if not isinstance(arg, Tensor) or where is None:
            return arg
        dim = where.dim - len(shape) + arg.dim()  # constants are broadcast, aligned at the last dimension
        if dim < 0 or arg.shape[dim] == 1 or arg.shape[dim] != shape[where.dim]:
            return arg
        row = arg.narrow(dim, 0, 1)
        if arg.stride(dim) != 0 and not bool((arg == row).all()):
            raise ValueError(
                f"{self.layer_graph.place(op)} uses a constant that differs between the {self.planned} example inputs: "
                "y must have as many samples"
            )
        return row

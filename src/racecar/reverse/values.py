"""The tensors of one forward pass, found by the numbers that a plan gives its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from racecar.plan.batch import place_in
from racecar.plan.graph import Op
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.slices import cut
from racecar.rules.batch_dim import BatchDim
from racecar.rules.norm import Moments, has_batch_statistics, moments
from racecar.rules.roles import Role
from racecar.watch.calls import Call
from racecar.watch.trace import tensor_of


class ForwardValues:
    """The tensors of one forward pass.

    Args:
        layer_graph: the graph of the branch that the pass took.
        calls: the calls of the pass, by the ordinal of their operation; None: torch.compile hides the call.
        inputs: the tensors among the model's arguments.
    """

    def __init__(self, layer_graph: LayerGraph, calls: Sequence[Call | None], inputs: Sequence[Tensor]) -> None:
        self.layer_graph, self.calls, self.inputs = layer_graph, calls, inputs
        self.values = layer_graph.values

    def tensor(self, value: int) -> Tensor:
        """The tensor of a value. Where torch.compile hides the call that made it, it is taken from the arguments of
        the next call, or computed again, which the compiler reduces to one computation."""
        call, slot = at = self.values[value]
        maker = self.calls[call] if call >= 0 and slot == 0 else None
        if maker is not None and isinstance(maker.kept, Tensor):  # nearly always
            return maker.kept
        tensor = tensor_of(at, self.calls, self.inputs)
        if tensor is not None:
            return tensor
        for user in self.layer_graph.graph.users.get(value, ()):
            use = self.calls[user.ordinal]
            if use is not None and user.called is not None:
                return _argument(use, next(path for path, used in user.inputs if used == value))
        op = self.layer_graph.graph.maker.get(value)
        if op is not None and op.role.passable and op.role is not Role.NORM:
            out = op.operation(self.calls)(self.tensor(op.source))
            tensor = out if isinstance(out, Tensor) else None
        if tensor is None:
            raise RuntimeError(
                f"torch.compile hides the tensor between {self.layer_graph.around(value)}; use it uncompiled"
            )
        return tensor

    def batch(self, value: int) -> BatchDim | None:
        """The batch dimension of a value; None if it is unknown."""
        place = self.layer_graph.batch.get(value)
        if place is None or place.outer_of is None:
            return place
        return place_in(self.layer_graph.graph, self.layer_graph.batch, value, lambda one: self.tensor(one).shape)

    def moments(self, op: Op, size: int, samples: int) -> Moments | None:
        """Mean and 1/σ of a norm's input: of the slice, and for a batch norm of the whole batch, as it was recorded."""
        norm, call = op.operation(self.calls), self.calls[op.ordinal]
        of_batch = has_batch_statistics(norm)
        x = self.tensor(op.source)
        if of_batch and call is not None and (recorded := call.moments) is not None:
            shape = (1, -1, *(1,) * (x.dim() - 2))
            return recorded._replace(mean=recorded.mean.view(shape), inverse=recorded.inverse.view(shape))
        where = self.batch(op.source) if samples < size and not of_batch else None
        return moments(norm, x if where is None else cut(x, where, size, samples))


def _argument(call: Call, path: Sequence[int | str]) -> Tensor:
    """The tensor at a path among the arguments of a call."""
    value: Any = call.kwargs if isinstance(path[0], str) else call.args
    for step in path:
        value = value[step]
    return value

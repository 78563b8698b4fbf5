"""Find the tensors of a pass: by the values of a plan, among the calls that were watched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from racecar.plan.batch import place_in
from racecar.plan.graph import Op
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.slices import cut
from racecar.reverse.needs import Needs
from racecar.rules.batch_dim import BatchDim
from racecar.rules.norm import Moments, first_rows, has_batch_statistics, moments
from racecar.rules.operation import Operation
from racecar.rules.roles import Role
from racecar.watch.calls import Call
from racecar.watch.trace import tensor_of

Rows = dict[int, Tensor]
"""Value → its first samples, in memory of their own, where a reverse pass starts."""


class Finder:
    """Finds the tensor of a value among the calls of a pass."""

    def __init__(self, layer_graph: LayerGraph, calls: Sequence[Call | None], inputs: Sequence[Tensor]) -> None:
        self.layer_graph, self.calls, self.inputs = layer_graph, calls, inputs
        self.values = layer_graph.values

    def tensor(self, value: int) -> Tensor:
        """What the maker returned, or what a user was given; where torch.compile hides both, the value is recomputed,
        which the compiler does only once."""
        call, slot = at = self.values[value]
        made = self.calls[call] if call >= 0 and slot == 0 else None
        if made is not None and isinstance(made.kept, Tensor):  # nearly always
            return made.kept
        tensor = tensor_of(at, self.calls, self.inputs)
        if tensor is not None:
            return tensor
        for user in self.layer_graph.graph.users.get(value, ()):
            use = self.calls[user.ordinal]
            if use is not None and user.called is not None:
                return _at(use, next(path for path, used in user.inputs if used == value))
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
        """Where the samples run in a value; None where that is lost."""
        place = self.layer_graph.batch.get(value)
        if place is None or place.outer_of is None:
            return place
        return place_in(self.layer_graph.graph, self.layer_graph.batch, value, lambda one: self.tensor(one).shape)

    def all_rows(self, needs: Needs, size: int, samples: int) -> Rows:
        """The first samples of values where a reverse pass starts, in memory of their own: for views of them a compiler
        would keep the whole values. Not of those that a batch norm's input, which is kept, gives again."""
        found = {}
        for value in needs.values:
            if value in needs.own and self.batch(value) == BatchDim(0):
                used = self.layer_graph.graph.users.get(value, ())  # a view of it, as of a qkv, keeps it whole anyway
                if any(op.role is not Role.SHAPE for op in used) and self._norm(value) is None:
                    tensor = self.tensor(value).detach()
                    some = torch.arange(tensor.shape[0] // size * samples, device=tensor.device)
                    found[value] = tensor.index_select(0, some)  # a clone would be taken for the view
        return found

    def normed_rows(self, value: int, size: int, samples: int) -> Tensor | None:
        """The first samples of a batch norm's output, which the compiler would have to write first, without the rest;
        None of other values."""
        norm = self._norm(value)
        if norm is None:
            return None
        x = self.tensor(self.layer_graph.graph.maker[value].source).detach()
        return first_rows(norm, x, cut(x, BatchDim(0), size, samples))

    def moments(self, op: Op, size: int, samples: int) -> Moments | None:
        """Of the input of a norm, as far as it counts for the slice; of a batch norm those that the call kept."""
        norm, call = op.operation(self.calls), self.calls[op.ordinal]
        whole = has_batch_statistics(norm)
        x = self.tensor(op.source)
        if whole and call is not None and (kept := call.moments) is not None:
            form = (1, -1, *(1,) * (x.dim() - 2))
            return kept._replace(mean=kept.mean.view(form), inverse=kept.inverse.view(form))
        where = self.batch(op.source) if samples < size and not whole else None
        return moments(norm, x if where is None else cut(x, where, size, samples))

    def _norm(self, value: int) -> Operation | None:
        """The batch norm that made a value by the statistics of its input; None of other values."""
        op = self.layer_graph.graph.maker.get(value)
        if op is None or op.role is not Role.NORM or op.members:
            return None
        operation = op.operation(self.calls)
        return operation if has_batch_statistics(operation) else None


def _at(call: Call, path: Sequence[int | str]) -> Tensor:
    holder: Any = call.kwargs if isinstance(path[0], str) else call.args
    for step in path:
        holder = holder[step]
    return holder

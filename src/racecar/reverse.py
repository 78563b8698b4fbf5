"""Run a plan backwards: the whole way, layer by layer, or for the input alone; on the batch or on a slice of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Size, Tensor

from racecar.batch import cut
from racecar.capture import Call, outputs
from racecar.errors import RuleError
from racecar.graph import Op
from racecar.plan import Plan
from racecar.route import Entry, Route, Step
from racecar.rules.conv import fold_padding
from racecar.rules.registry import Operation


class Tape:
    """What one forward pass left behind for the way back: tensors of values and real arguments of calls.

    Args:
        plan: the plan of this way through the model.
        calls: for every operation of the plan its call, None where torch.compile hides it.
        inputs: the model's input tensors.
        samples: how many samples of the batch the way back sees.
    """

    def __init__(self, plan: Plan, calls: Sequence[Call | None], inputs: Sequence[Tensor], size: int, samples: int):
        self.plan, self.calls, self.inputs = plan, calls, inputs
        self.size, self.samples = size, samples

    def find(self, value: int) -> Tensor | None:
        """The whole tensor of a value: what its maker returned, or what a user of it was given."""
        call, slot = self.plan.values[value]
        if call < 0:
            return self.inputs[slot]
        made = self.calls[call]
        if made is not None:
            return made.kept if isinstance(made.kept, Tensor) else outputs(made)[slot]
        for op in self.plan.graph.users.get(value, ()):
            user = self.calls[op.ordinal]
            path = next(path for path, used in op.inputs if used == value)
            if user is not None and not op.members:
                return _at(user, path)
        return None

    def whole_shape(self, value: int) -> Size:
        """The shape of a value, looked up beside it where torch.compile hides both ends."""
        tensor = self.find(value)
        if tensor is not None:
            return tensor.shape
        for op in (self.plan.graph.maker.get(value), *self.plan.graph.users.get(value, ())):
            if op is not None and (op.pointwise or op.role in ("norm", "pass", "affine")):
                other = op.source if op.outputs[0] == value else op.outputs[0]
                tensor = self.find(other)
                if tensor is not None:
                    return tensor.shape
        raise RuntimeError(
            f"torch.compile hides the tensor between {self.plan.around(value)}; use the model uncompiled"
        )

    def shape(self, value: int) -> Size:
        """The shape of a value in the slice."""
        shape = self.whole_shape(value)
        batch = self.plan.batch[value]
        if self.samples == self.size or batch is None:
            return shape
        rows = shape[batch.dim] // self.size * self.samples
        return torch.Size((*shape[: batch.dim], rows, *shape[batch.dim + 1 :]))

    def tensor(self, value: int) -> Tensor:
        """A value, cut to the slice."""
        tensor = self.find(value)
        if tensor is None:
            raise RuntimeError(f"torch.compile hides the tensor after {self.plan.around(value)}; use it uncompiled")
        batch = self.plan.batch[value]
        if self.samples == self.size or batch is None:
            return tensor
        return cut(tensor, batch, self.size, self.samples)

    def operation(self, op: Op, name: str) -> Operation:
        """An operation with its real arguments; constants that hold a value per sample are cut as well."""
        operation = op.operation(self.calls, name)
        if self.samples != self.size and (op.role == "affine" or op.kind.endswith("(vjp)")):
            shape, batch = self.whole_shape(op.outputs[0]), self.plan.batch[op.outputs[0]]
            if batch is not None:
                operation.args = tuple(
                    cut(one, batch, self.size, self.samples)
                    if isinstance(one, Tensor) and one.dim() == len(shape) and one.shape[batch.dim] == shape[batch.dim]
                    else one
                    for one in operation.args
                )
        return operation


def _at(call: Call, path: Sequence[int | str]) -> Tensor:
    holder: Any = call.kwargs if isinstance(path[0], str) else call.args
    for step in path:
        holder = holder[step]
    return holder


def run(
    route: Route,
    tape: Tape,
    input_activation: Callable[[Tensor], Tensor] | None,
    everything: bool = False,
) -> dict[int, Tensor]:
    """d'_m for every layer that the loss needs, or that the way back passes (``everything``), by layer index."""
    reverse: dict[int, Tensor] = {}
    for entry in reversed(route.entries):
        layer = entry.layer
        if layer is None or not (entry.passed if everything else entry.needed):
            continue
        y = reverse[entry.upper.index] if entry.upper is not None else tape.tensor(layer.out)
        for step in entry.steps:
            y = _step(step, y, tape, entry)
        if input_activation is not None and layer.reads_input:
            y = input_activation(y)
        shape = tape.shape(layer.d)
        if y.shape != shape:
            raise RuleError(
                f"the way back through layer {layer.name!r} gave shape {tuple(y.shape)}, d_m has {tuple(shape)}"
            )
        reverse[layer.index] = y
    return reverse


def _step(step: Step, y: Tensor, tape: Tape, entry: Entry) -> Tensor:
    op = step.op
    assert op.rule is not None
    if step.action == "move" and op.kind in ("flatten", "reshape", "view", "unflatten", "squeeze", "unsqueeze"):
        return y.reshape(tape.shape(op.outputs[0]))
    operation = tape.operation(op, entry.name)
    if step.action == "move" or (step.action == "redo" and op.role == "affine"):
        return operation(y)
    if step.action == "redo":
        assert op.rule.apply is not None
        return op.rule.apply(operation, y)
    shape = tape.shape(op.source)
    if step.action == "lift":
        return y if op.rule.lift is None else op.rule.lift(operation, y, shape)
    rule = fold_padding if step.action == "fold" else op.rule.apply
    assert rule is not None
    x = rule(operation, y, shape)
    if not isinstance(x, Tensor) or x.shape != shape:
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise RuleError(
            f"rule {getattr(rule, '__name__', rule)!r} for {op.kind} in layer {entry.name!r} returned {got}, "
            f"but the operation's input has shape {tuple(shape)}"
        )
    return x

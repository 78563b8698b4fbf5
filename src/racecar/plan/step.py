"""One step of the reverse pass: what is done with an operation, on real arguments."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import torch
from torch import Size, Tensor

from racecar.plan.graph import Op
from racecar.rules.conv import fold_padding
from racecar.rules.operation import Operation
from racecar.rules.roles import Role


class Action(Enum):
    """What a step does with its operation, and whether that takes the operation's output back to its input."""

    UNDO = "undo", True
    FOLD = "fold", True
    """Undo a convolution's own padding."""
    PART = "part", True
    """Undo an operation that keeps a part and has no rule of its own."""
    LIFT = "lift", False
    """Bring dropped dimensions back with size 1."""
    REDO = "redo", False
    """Apply a norm or activation again."""
    MOVE = "move", False
    """Apply a change of layout or resolution again."""

    def __init__(self, word: str, undoes: bool) -> None:
        self.undoes = undoes


class Step(NamedTuple):
    """One step of the reverse pass."""

    action: Action
    op: Op


def undo(op: Op) -> Step:
    """The step that takes an operation back."""
    return Step(Action.PART if op.rule is None or op.rule.apply is None else Action.UNDO, op)


def take(step: Step, y: Tensor, operation: Operation, shapes: dict[int, Size]) -> Tensor:
    """One step, on real arguments."""
    if step.op.constants is not None:
        return step.op.constants.call(_take, step, y, operation, shapes)
    return _take(step, y, operation, shapes)


def _take(step: Step, y: Tensor, operation: Operation, shapes: dict[int, Size]) -> Tensor:
    action, op = step
    rule = op.rule
    if action is Action.PART:
        return _part(operation, y, shapes[op.source], op.slot)
    assert rule is not None
    apply = rule.apply
    if action is Action.UNDO:
        assert apply is not None
        return apply(operation, y, shapes[op.source])
    if action is Action.REDO and op.role is not Role.AFFINE:
        assert apply is not None
        return apply(operation, _in_double(y, operation) if op.role is Role.NORM else y)
    if action is Action.LIFT:
        return y if rule.lift is None else rule.lift(operation, y, shapes[op.source])
    if action is Action.FOLD:
        return fold_padding(operation, y, shapes[op.source])
    if rule.reapply is not None:
        return rule.reapply(operation, y, shapes[op.outputs[0]])
    return output(operation(y), op.slot)


def _in_double(y: Tensor, operation: Operation) -> Tensor:
    """What a norm is given, as precise as its parameters where one of them is in float64: torch's norms take data in
    half precision with parameters in float32, but no other mixture."""
    for one in (*operation.args, *operation.kwargs.values()):
        if isinstance(one, Tensor) and one.dtype != y.dtype and torch.float64 in (one.dtype, y.dtype):
            return y.to(one.dtype)
    return y


def _part(operation: Operation, y: Tensor, shape: Size, slot: int) -> Tensor:
    """What a selection left out comes back as zeros: its adjoint. (Of a vjp, a compiled slice keeps more.)"""
    places = torch.arange(shape.numel(), device=y.device).view(shape)
    kept = output(operation(places), slot).reshape(-1)
    return y.new_zeros(shape.numel()).index_add(0, kept, y.reshape(-1)).view(shape)


def output(out: Tensor | Sequence[Tensor], slot: int) -> Tensor:
    """Output ``slot`` of an operation."""
    return out if isinstance(out, Tensor) else [one for one in out if isinstance(one, Tensor)][slot]

"""The steps of the reverse pass, and how one step is taken on a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import torch
from torch import Size, Tensor

from racecar.plan.graph import Op
from racecar.rules.operation import Operation
from racecar.rules.roles import Role


class Action(Enum):
    """What a step does with its operation; the flag ``undoes`` says whether it leads from its output to its input."""

    UNDO = "undo", True
    """Undo the operation by its rule; a selection without a function by zeros for what was not selected."""
    LIFT = "lift", False
    """Give dimensions that a reduction dropped back with size 1."""
    REDO = "redo", False
    """Apply a norm or activation again."""
    MOVE = "move", False
    """Apply a change of layout or resolution again."""

    def __init__(self, word: str, undoes: bool) -> None:
        self.undoes = undoes


class Step(NamedTuple):
    """One step of the reverse pass: an action on an operation of the forward pass."""

    action: Action
    op: Op


def take(step: Step, y: Tensor, operation: Operation, shapes: dict[int, Size]) -> Tensor:
    """The result of a step on y.

    Args:
        operation: the step's operation, with the arguments of the forward pass.
        shapes: of the values of the forward pass, cut to the slice of the batch.
    """
    if step.op.constants is not None:
        return step.op.constants.call(_take, step, y, operation, shapes)
    return _take(step, y, operation, shapes)


def _take(step: Step, y: Tensor, operation: Operation, shapes: dict[int, Size]) -> Tensor:
    """``take``, without regard to whether the model ran the operation under ``no_grad``."""
    action, op = step
    rule = op.rule
    if action is Action.UNDO:
        shape = shapes[op.source]
        return _scatter(operation, y, shape, op.slot) if rule.apply is None else rule.apply(operation, y, shape)
    if action is Action.REDO and op.role is not Role.AFFINE:
        assert rule.apply is not None
        return rule.apply(operation, _in_double(y, operation) if op.role is Role.NORM else y)
    if action is Action.LIFT:
        return y if rule.lift is None else rule.lift(operation, y, shapes[op.source])
    if rule.reapply is not None:
        return rule.reapply(operation, y, shapes[op.outputs[0]])
    return output(operation(y), op.slot)


def _in_double(y: Tensor, operation: Operation) -> Tensor:
    """y in the dtype of a norm's parameters if one of the two dtypes is float64.

    torch's norms accept half precision data with float32 parameters, but no other mixture.
    """
    for arg in (*operation.args, *operation.kwargs.values()):
        if isinstance(arg, Tensor) and arg.dtype != y.dtype and torch.float64 in (arg.dtype, y.dtype):
            return y.to(arg.dtype)
    return y


def _scatter(operation: Operation, y: Tensor, shape: Size, slot: int) -> Tensor:
    """The adjoint of a selection: y at the places of the selected elements, zeros elsewhere.

    Not a vector-Jacobian product, which would keep more in memory when a slice is compiled.
    """
    indices = torch.arange(shape.numel(), device=y.device).view(shape)
    selected = output(operation(indices), slot).reshape(-1)
    return y.new_zeros(shape.numel()).index_add(0, selected, y.reshape(-1)).view(shape)


def output(out: Tensor | Sequence[Tensor], slot: int) -> Tensor:
    """The tensor with index ``slot`` among the results of an operation."""
    return out if isinstance(out, Tensor) else [part for part in out if isinstance(part, Tensor)][slot]

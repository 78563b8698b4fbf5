"""A layer's output computed again from constants, so that its gradient reaches the layer's weights and nothing below.

The reverse pass starts at d_(m+1), which depends on the layer's weights and on all layers below. For
``gradient="weights"`` the layer's operation is called again on its input as a constant. What follows the operation
(bias, norm, activation) is applied again, with the batch statistics and dropout masks of the forward pass as constants.
The recomputed d_(m+1) has the same values as the stored one.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from racecar.plan.graph import Op
from racecar.plan.layer import Layer
from racecar.plan.step import Action, Step, output, take
from racecar.reverse.needs import ALPHA_DROPOUTS, is_random
from racecar.reverse.tape import Tape
from racecar.rules.norm import first_rows, has_batch_statistics
from racecar.rules.operation import Operation
from racecar.rules.roles import Role


def recompute(layer: Layer, tape: Tape) -> Tensor:
    """d_(m+1) of a layer on the slice of a tape, whose tensors are constants."""
    y = output(tape.operations[layer.op.ordinal](tape.tensors[layer.op.source]), 0)
    for op in layer.onward:
        y = _apply_again(op, y, tape.operations[op.ordinal], tape)
    return y


def _apply_again(op: Op, y: Tensor, operation: Operation, tape: Tape) -> Tensor:
    if is_random(op):
        return _with_same_dropout(op, y, tape.tensors)
    if op.role.moves or op.role is Role.AFFINE:
        return take(Step(Action.MOVE, op), y, operation, tape.shapes)
    if op.role is Role.NORM and not op.members and has_batch_statistics(operation):
        return first_rows(operation, tape.whole[op.source], y)
    if op.role is Role.NORM and not op.members and op.rule.apply is not None:
        return op.rule.apply(operation, y)  # changes no running statistic
    return output(operation(y), 0)


def _with_same_dropout(op: Op, y: Tensor, tensors: Mapping[int, Tensor]) -> Tensor:
    """Dropout of y with the mask that the forward pass drew, which its input and output there reveal."""
    before, after = tensors[op.source], tensors[op.outputs[0]]
    if op.kind in ALPHA_DROPOUTS:
        return y + (after - before)
    return y * torch.where(before == 0, 1, after / before)

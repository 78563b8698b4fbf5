"""The tape of one forward pass: the tensors, shapes and operations that the reverse pass needs, cut to a slice."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Size, Tensor

from racecar.plan.slices import cut, cut_constants, cut_shape
from racecar.reverse.masks import PassMasks
from racecar.reverse.needs import Needs
from racecar.reverse.slicing import BatchSlice, Slicer
from racecar.reverse.values import ForwardValues
from racecar.rules.operation import Operation
from racecar.support.compiling import compiling
from racecar.support.without_grad import constant


@dataclass
class Tape:
    """What a reverse pass needs of one forward pass, and nothing else, so that other activations are freed."""

    part: BatchSlice
    """The slice of the batch that the reverse pass sees."""
    shapes: dict[int, Size]
    """Value → shape in the slice."""
    tensors: dict[int, Tensor]
    """Value → tensor of the slice, with padding filled."""
    whole: dict[int, Tensor]
    """Value → tensor of the whole batch, as a constant."""
    operations: dict[int, Operation]
    """Ordinal → operation with its real arguments."""
    masks: PassMasks | None = None
    """Where values are data; None: nowhere is padding."""


def record(
    needs: Needs,
    values: ForwardValues,
    part: BatchSlice,
    slicer: Slicer | None = None,
    masks: PassMasks | None = None,
) -> Tape:
    """The tape of one forward pass.

    Args:
        needs: what the reverse pass needs.
        values: the tensors of the forward pass.
        part: the slice of the batch.
        slicer: cuts that slice; None if it is the whole batch.
        masks: of the pass, cut to the slice.
    """
    needed = {value: values.tensor(value) for value in needs.shapes}
    if not compiling():  # no gradient may use tensors of inference mode as they are
        needed.update({value: constant(tensor) for value, tensor in needed.items() if tensor.is_inference()})
    operations = {op.ordinal: op.operation(values.calls, name) for op, name in needs.ops}
    whole = {value: constant(values.tensor(value)) for value in needs.whole}
    tensors = {value: needed[value].detach() if value in needs.constant else needed[value] for value in needs.values}
    if slicer is None:
        shapes = {value: tensor.shape for value, tensor in needed.items()}
    else:
        shapes = {value: cut_shape(tensor.shape, values.batch(value), *part) for value, tensor in needed.items()}
        for value, tensor in tensors.items():
            where = values.batch(value)
            if where is not None:
                is_constant = value in needs.constant
                tensors[value] = cut(tensor, where, *part) if is_constant else slicer(value, tensor, where)
        _cut_constants(needs, values, operations, part)
    if masks is not None:
        tensors = {value: masks.fill(value, tensor, int(value in needs.filled)) for value, tensor in tensors.items()}
    return Tape(part, shapes, tensors, whole, operations, masks)


def _cut_constants(needs: Needs, values: ForwardValues, operations: dict[int, Operation], part: BatchSlice) -> None:
    """Cut constants among the arguments of operations that hold a number for each sample."""
    for op, _ in needs.ops:
        if op.ordinal in values.layer_graph.per_sample:
            operation = operations[op.ordinal]
            pairs = zip(op.members, operation.members, strict=True) if op.members else ((op, operation),)
            for member, its_operation in pairs:
                where = values.batch(member.outputs[0])
                if where is not None:
                    cut_constants(its_operation, values.tensor(member.outputs[0]).shape, where, *part)

"""What one forward pass leaves behind for the reverse pass: tensors, shapes and operations, cut to a slice."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Size, Tensor

from racecar.plan.slices import cut, cut_constants, cut_shape
from racecar.reverse.masks import Masks
from racecar.reverse.needs import Needs
from racecar.reverse.slicing import FirstRows, part_of
from racecar.reverse.values import Finder, Rows
from racecar.rules.batch_dim import BatchDim
from racecar.rules.operation import Operation
from racecar.support.compiling import compiling
from racecar.support.without_grad import constant


@dataclass
class Tape:
    """What one forward pass leaves behind for the reverse pass. Nothing else of it is held, so that the rest of its
    activations can be freed."""

    size: int
    """Samples in the batch."""
    samples: int
    """Samples that the reverse pass sees, from the start of the batch."""
    shapes: dict[int, Size]
    tensors: dict[int, Tensor]
    """Without what stands in padding."""
    wholes: dict[int, Tensor]
    """Of the whole batch, as constants."""
    operations: dict[int, Operation]
    """With real arguments."""
    masks: Masks | None = None
    """Where values count; None: everywhere."""


def record(
    needs: Needs, find: Finder, size: int, samples: int, rows: Rows | None = None, masks: Masks | None = None
) -> Tape:
    """The tape of one forward pass.

    Args:
        needs: what the reverse pass asks for.
        find: finds the tensors of the pass.
        size, samples: as in a tape.
        rows: those that were found before.
        masks: as in a tape.
    """
    found = {value: find.tensor(value) for value in needs.shapes}
    if not compiling():  # what the model makes in inference mode no gradient may use as it is
        found.update({value: constant(one) for value, one in found.items() if one.is_inference()})
    operations = {op.ordinal: op.operation(find.calls, name) for op, name in needs.ops}
    wholes = {value: constant(find.tensor(value)) for value in needs.wholes}
    if samples == size:
        shapes = {value: tensor.shape for value, tensor in found.items()}
        tensors = {value: found[value].detach() if value in needs.constant else found[value] for value in needs.values}
        return Tape(size, samples, shapes, _cleaned(tensors, needs, masks), wholes, operations, masks)
    rows = rows or {}
    shapes = {value: cut_shape(tensor.shape, find.batch(value), size, samples) for value, tensor in found.items()}
    tensors = {}
    for value in needs.values:
        tensor, where = found[value], find.batch(value)
        if value in needs.constant:
            tensor = tensor.detach()
            tensor = tensor if where is None else cut(tensor, where, size, samples)
        elif where is not None:
            if compiling():
                part = rows.get(value)
                if part is None and where == BatchDim(0) and value in needs.starts:
                    part = find.normed_rows(value, size, samples)
                tensor = cut(tensor, where, size, samples) if part is None else FirstRows.apply(tensor, part)
            else:
                tensor = part_of(tensor, where, size, samples, own=value in needs.own)
        tensors[value] = tensor
    for op, _ in needs.ops:
        if op.ordinal in find.layer_graph.per_sample:
            operation = operations[op.ordinal]
            pairs = zip(op.members, operation.members, strict=True) if op.members else ((op, operation),)
            for one, its in pairs:
                where = find.batch(one.outputs[0])
                if where is not None:
                    cut_constants(its, find.tensor(one.outputs[0]).shape, where, size, samples)
    return Tape(size, samples, shapes, _cleaned(tensors, needs, masks), wholes, operations, masks)


def _cleaned(tensors: dict[int, Tensor], needs: Needs, masks: Masks | None) -> dict[int, Tensor]:
    """Without what stands in padding. Where a way back starts, 1 does: some functions have no slope at 0. Elsewhere
    0, as in what a convolution pads."""
    if masks is None:
        return tensors
    return {value: masks.clean(value, tensor, int(value in needs.live)) for value, tensor in tensors.items()}

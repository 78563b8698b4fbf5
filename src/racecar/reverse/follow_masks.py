"""The mask of a model's inputs, followed through the operations of a forward pass.

The rule of an operation computes the mask of its output. Where no rule can, the mask is lost from there on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Size, Tensor

from racecar.plan.causal import causal_cut
from racecar.plan.graph import Op
from racecar.reverse.values import ForwardValues
from racecar.rules.mask_rules import Masks, by_element
from racecar.rules.operation import Operation, Path


class LostMask(NamedTuple):
    """Stands for a mask that cannot be determined."""

    place: str
    """The operation at which the mask was lost, in words."""


Mask = Tensor | LostMask | None
"""The mask of a value, True where it is data; None: all of the value is data."""


def follow(ops: Sequence[Op], values: ForwardValues, inputs: Sequence[Tensor | None]) -> dict[int, Mask]:
    """Value → mask, for the model's inputs and all outputs of ``ops``; values that are missing are data throughout.

    Args:
        ops: operations in forward order.
        values: the tensors of the pass.
        inputs: the masks of the model's inputs.
    """
    masks: dict[int, Mask] = {}
    for value, at in enumerate(values.layer_graph.values):
        if at.call < 0:
            masks[value] = inputs[at.slot]
    for op in ops:
        known = [masks.get(value) for _, value in op.position_inputs]
        if all(mask is None for mask in known):
            continue
        result = _mask_of_output(op, known, values, masks)
        for i, value in enumerate(op.outputs):
            mask = result[op.slot + i] if isinstance(result, list) else result
            masks[value] = LostMask(values.layer_graph.place(op)) if mask is None else mask
    return masks


def _mask_of_output(
    op: Op, known: Sequence[Mask], values: ForwardValues, masks: Mapping[int, Mask]
) -> Mask | list[Tensor]:
    """The mask of an operation's output, or one for each output; None if the mask is lost here.

    Args:
        known: the masks of the inputs whose positions the output has.
        masks: of all values so far.
    """
    if op.func is None:  # another tensor is written into a part of the first
        return known[0] if len(known) > 1 else None
    lost_mask = next((mask for mask in known if isinstance(mask, LostMask)), None)
    rule = op.rule.mask
    if rule is None or (lost_mask is not None and rule is not by_element):
        return lost_mask
    input_masks = [None if isinstance(mask, LostMask) else mask for mask in known]
    result = rule(PassedOperation(op, input_masks, values, masks))
    return lost_mask if result is None else result


class PassedOperation:
    """One operation of a forward pass with the masks of its inputs: see
    :class:`racecar.rules.mask_rules.MaskedOperation`."""

    def __init__(self, op: Op, masks: Masks, values: ForwardValues, known: Mapping[int, Mask]) -> None:
        self.masks, self._op, self._values, self._known = masks, op, values, known

    @property
    def paths(self) -> Sequence[Path]:
        return [path for path, _ in self._op.position_inputs]

    @property
    def operation(self) -> Operation:
        return self._op.operation(self._values.calls)

    @property
    def inputs(self) -> Sequence[Tensor]:
        return [self._values.tensor(value) for _, value in self._op.inputs]

    @property
    def shape(self) -> Size:
        return self._values.tensor(self._op.outputs[0]).shape

    def unpadded(self, dims: int) -> Tensor | None:
        maker = self._values.layer_graph.graph.maker.get(self._op.source)
        if maker is None or maker.kind != "pad":
            return None
        mask = self._known.get(maker.source)
        fits = self._values.tensor(maker.source).shape[-dims:] == self.shape[-dims:]
        return mask if fits and isinstance(mask, Tensor) else None

    def is_cut(self) -> bool:
        values = self._values
        graph = values.layer_graph.graph
        return causal_cut(graph, self._op, lambda op: op.operation(values.calls), values.tensor) is not None

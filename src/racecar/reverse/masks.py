"""The padding masks of one forward pass: for every d_m, every norm and every other step that needs one."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Size, Tensor

from racecar.plan.graph import Op
from racecar.plan.slices import cut
from racecar.reverse.follow_masks import LostMask, follow
from racecar.reverse.mask_arguments import CallMask
from racecar.reverse.values import ForwardValues
from racecar.rules.context import StepMasks
from racecar.rules.mask_rules import fit
from racecar.rules.norm import Moments
from racecar.rules.operation import Operation
from racecar.rules.roles import Role


class PassMasks:
    """The masks of one forward pass, cut to the slice of the batch that the reverse pass sees.

    Args:
        values: the tensors of the pass.
        mask: of the call.
        size, samples: of the batch and of the slice.
    """

    def __init__(self, values: ForwardValues, mask: CallMask, size: int, samples: int) -> None:
        paths, self._report, self.inputs = values.layer_graph.masked, mask.report, mask.inputs
        masks = follow(paths.operations, values, mask.inputs)
        self._masks = {value: masks[value] for value in paths.values if value in masks}
        if samples < size:
            for value, whole in self._masks.items():
                where = values.batch(value)
                if isinstance(whole, Tensor) and where is not None and whole.shape[where.dim] > 1:
                    self._masks[value] = cut(whole, where, size, samples)

    def of(self, value: int, shape: Size | None, name: str) -> Tensor | None:
        """The mask of a value: bool, of as many dimensions, each of the same length or 1; None: all of it is data.

        A mask that is lost or does not fit is reported to the user, as the mask of the call says.

        Args:
            value: its number.
            shape: of the value in the reverse pass; None: as in the forward pass.
            name: of the value, for the message.
        """
        mask = self._masks.get(value)
        if isinstance(mask, LostMask):
            self._report(f"a mask cannot be followed through {mask.place} to {name}")
        elif mask is not None and shape is not None and fit(mask, shape) is None:
            self._report(f"{name} sees another number of positions in the reverse pass")
        else:
            return mask
        return None

    def fill(self, value: int, tensor: Tensor, filling: int) -> Tensor:
        """The tensor of a value with ``filling`` in its padding. (A NaN there, multiplied by a mask of 0, would stay
        NaN in the loss and in its gradient.)"""
        mask = self._masks.get(value)
        mask = fit(mask, tensor.shape) if isinstance(mask, Tensor) and tensor.is_floating_point() else None
        return tensor if mask is None else torch.where(mask, tensor, filling)

    def without_padding(self, value: int, moments: Moments) -> Moments:
        """The moments of the input of the norm that computed a value; for groups that are padding alone, the moments
        of zeros."""
        mask = self._masks.get(value)
        mask = fit(mask, moments.mean.shape) if isinstance(mask, Tensor) else None
        if mask is None:
            return moments
        inverse_of_zeros = max(moments.eps, torch.finfo(moments.inverse.dtype).tiny) ** -0.5
        mean = torch.where(mask, moments.mean, 0)
        return moments._replace(mean=mean, inverse=torch.where(mask, moments.inverse, inverse_of_zeros))

    def attach(self, op: Op, operation: Operation, y: Tensor, shapes: Mapping[int, Size]) -> Operation:
        """An operation with the masks that it needs in a step of the reverse pass: those of norms, of convolutions,
        which reach over several positions, and of sums, which are distributed over positions.

        Args:
            op, operation: the operation of the plan, and with its real arguments.
            y: what the step is applied to.
            shapes: value → shape in the reverse pass.
        """
        if not op.members:
            return self._attach(op, operation, y.shape, shapes)
        members = []
        for member, its_operation in zip(op.members, operation.members, strict=True):
            if member.role is not Role.RESAMPLE:  # applied again, not distributed
                shape = None if member.role is Role.LAYER else y.shape
                its_operation = self._attach(member, its_operation, shape, shapes)
            members.append(its_operation)
        return operation.with_members(members)

    def _attach(self, op: Op, operation: Operation, shape: Size | None, shapes: Mapping[int, Size]) -> Operation:
        takes_mask = op.rule.takes_mask
        if takes_mask is None:
            return operation
        name, output = f"{op.kind!r} in the reverse pass", op.outputs[0]
        masks = StepMasks(
            input=lambda: self.of(op.source, shapes[op.source], name),
            output=lambda: self.of(output, shape, name),
            known=isinstance(self._masks.get(output), Tensor),
        )
        mask = takes_mask(operation, masks)
        return operation if mask is None else operation.within(operation.context._replace(mask=mask))

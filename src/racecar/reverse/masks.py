"""Where the activations of a pass count: what a call says of padding, for every d_m and every norm."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Size, Tensor

from racecar.plan.graph import Op
from racecar.plan.slices import cut
from racecar.reverse.follow_masks import Lost, follow
from racecar.reverse.mask_arguments import CallMask
from racecar.reverse.values import Finder
from racecar.rules.context import StepMasks
from racecar.rules.mask_rules import fit
from racecar.rules.norm import Moments
from racecar.rules.operation import Operation
from racecar.rules.roles import Role


class Masks:
    """The masks of one pass, cut to the slice of the batch that the reverse pass sees.

    Args:
        find: finds the tensors of the pass.
        given: what the call says of padding.
        size, samples: of the batch and of the slice.
    """

    def __init__(self, find: Finder, given: CallMask, size: int, samples: int) -> None:
        paths, self._refuse, self.inputs = find.layer_graph.masked, given.report, given.inputs
        marks = follow(paths.operations, find, given.inputs)
        self._marks = {value: marks[value] for value in paths.values if value in marks}
        if samples < size:
            for value, mark in self._marks.items():
                where = find.batch(value)
                if isinstance(mark, Tensor) and where is not None and mark.shape[where.dim] > 1:
                    self._marks[value] = cut(mark, where, size, samples)

    def of(self, value: int, shape: Size | None, what: str) -> Tensor | None:
        """Where a value counts that has ``shape`` in the reverse pass (None: its own): bool, as many dimensions, each
        as long or 1; None: everywhere."""
        mark = self._marks.get(value)
        if isinstance(mark, Lost):
            self._refuse(f"a mask cannot be followed through {mark.place} to {what}")
        elif mark is not None and shape is not None and fit(mark, shape) is None:
            self._refuse(f"{what} sees another number of positions in the reverse pass")
        else:
            return mark
        return None

    def clean(self, value: int, tensor: Tensor, filling: int) -> Tensor:
        """A value with ``filling`` where it is padding: times a mask of 0, a NaN there would stay one, in the loss and
        in its gradient."""
        mark = self._marks.get(value)
        mark = fit(mark, tensor.shape) if isinstance(mark, Tensor) and tensor.is_floating_point() else None
        return tensor if mark is None else torch.where(mark, tensor, filling)

    def without_padding(self, value: int, found: Moments) -> Moments:
        """What a norm that made ``value`` took out of its input, nothing where it took it out of padding alone."""
        mark = self._marks.get(value)
        mark = fit(mark, found.mean.shape) if isinstance(mark, Tensor) else None
        if mark is None:
            return found
        alike = max(found.eps, torch.finfo(found.inverse.dtype).tiny) ** -0.5
        mean, inverse = torch.where(mark, found.mean, 0), torch.where(mark, found.inverse, alike)
        return found._replace(mean=mean, inverse=inverse)

    def within(self, op: Op, operation: Operation, y: Tensor, shapes: Mapping[int, Size]) -> Operation:
        """An operation that sees only what counts in a step on ``y``: a norm, a convolution that reaches over several
        positions, or a sum, which is shared out. ``shapes``: of values in the reverse pass."""
        if not op.members:
            return self._within(op, operation, y.shape, shapes)
        members = []
        for one, its in zip(op.members, operation.members, strict=True):
            if one.role is not Role.RESAMPLE:  # which is made again, and not shared out
                its = self._within(one, its, None if one.role is Role.LAYER else y.shape, shapes)
            members.append(its)
        return operation.with_members(members)

    def _within(self, op: Op, operation: Operation, shape: Size | None, shapes: Mapping[int, Size]) -> Operation:
        takes = None if op.rule is None else op.rule.takes_mask
        if takes is None:
            return operation
        what, made = f"{op.kind!r} in the reverse pass", op.outputs[0]
        step = StepMasks(
            input=lambda: self.of(op.source, shapes[op.source], what),
            output=lambda: self.of(made, shape, what),
            known=isinstance(self._marks.get(made), Tensor),
        )
        mask = takes(operation, step)
        return operation if mask is None else operation.within(operation.context._replace(mask=mask))

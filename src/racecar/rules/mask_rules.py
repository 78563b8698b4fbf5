"""Masks of padding: which positions of an operation's output count, given which positions of its inputs do.

A mask is True where a position counts and False where it is padding. It has as many dimensions as the tensor that it
belongs to, each as long or of length 1. An operation that moves elements moves the mask too; one that treats each
position separately leaves it; what is computed from several positions counts if one of them does (a mean over tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Size, Tensor

from racecar.rules.operation import FIRST, Operation, Path, reduced_dims

Masks = Sequence[Tensor | None]
"""One mask per tensor; None: the whole tensor counts."""


class MaskedOperation(Protocol):
    """One operation of a forward pass, together with the masks of its inputs."""

    @property
    def masks(self) -> Masks:
        """The masks of the inputs that determine the positions of the output (``Rule.positions_from``)."""

    @property
    def paths(self) -> Sequence[Path]:
        """Where these inputs stand among the operation's arguments."""

    @property
    def operation(self) -> Operation:
        """The operation with its real arguments."""

    @property
    def inputs(self) -> Sequence[Tensor]:
        """All data tensors among the operation's arguments."""

    @property
    def shape(self) -> Size:
        """The shape of the output."""

    def unpadded(self, dims: int) -> Tensor | None:
        """The mask before a ``pad`` that directly precedes the operation; None if there is no such pad, or if the
        operation's output differs from the pad's input in the length of the last ``dims`` dimensions."""

    def is_cut(self) -> bool:
        """Whether a slice after the operation removes the positions that it adds, as in a causal convolution."""


MaskRule = Callable[[MaskedOperation], Tensor | list[Tensor] | None]
"""Computes the mask of an operation's output, or one mask per output; None: the mask cannot be determined."""


def intersection(masks: Masks) -> Tensor | None:
    """True where all masks are: the mask of what is computed element by element from several tensors."""
    result: Tensor | None = None
    for mask in masks:
        if mask is not None and mask is not result:
            result = mask if result is None else result & mask
    return result


def fit(mask: Tensor | None, shape: Size) -> Tensor | None:
    """The mask with as many dimensions as ``shape``, aligned at the last one; None if it does not broadcast to it."""
    if mask is None or mask.dim() > len(shape):
        return None
    if mask.dim() < len(shape):
        mask = mask.reshape(*(1,) * (len(shape) - mask.dim()), *mask.shape)
    return mask if all(length in (1, size) for length, size in zip(mask.shape, shape, strict=True)) else None


def any_along(mask: Tensor, dims: Sequence[int]) -> Tensor:
    """True where any position along ``dims`` counts; these dimensions keep length 1."""
    long = [d for d in dims if mask.shape[d] > 1]
    return mask.amax(long, keepdim=True) if long else mask


def unknown(call: MaskedOperation) -> None:
    """Mask rule of operations whose output mask cannot be determined."""


def by_element(call: MaskedOperation) -> Tensor | None:
    """Mask rule of operations that work element by element, on one tensor or several."""
    return fit(intersection(call.masks), call.shape)


def in_place(call: MaskedOperation) -> Tensor | None:
    """Mask rule of operations that keep positions where they are; None if their number changes."""
    return fit(_single(call), call.shape)


def along_last(call: MaskedOperation) -> Tensor | None:
    """Mask rule of operations that mix the last dimension, such as a linear layer."""
    mask = _single(call)
    return None if mask is None else any_along(mask, [-1])


def reduced(call: MaskedOperation) -> Tensor | None:
    """Mask rule of reductions, which mix some dimensions and may drop them."""
    mask = _single(call)
    if mask is None:
        return None
    dims = reduced_dims(call.operation, mask.dim())
    mask = any_along(mask, dims)
    return mask if mask.dim() == len(call.shape) else mask.squeeze(dims)


def moved(call: MaskedOperation) -> Tensor | list[Tensor] | None:
    """Mask rule of operations that rearrange or select elements: the operation itself is applied to the mask."""
    mask, operation = call.masks[0], call.operation
    if mask is None or not operation.data_first:
        return None
    x, *others = call.inputs
    out = operation.run([mask.expand(x.shape), *others])
    return compact(out) if isinstance(out, Tensor) else [compact(part) for part in out if isinstance(part, Tensor)]


def moved_by(move: Callable[[Tensor, Size], Tensor]) -> MaskRule:
    """A mask rule for rearrangements that calls ``move(mask, shape of the output)`` instead of the operation."""

    def rule(call: MaskedOperation) -> Tensor | None:
        mask = call.masks[0]
        if mask is None or call.paths[0] not in FIRST:
            return None
        return compact(move(mask.expand(call.inputs[0].shape), call.shape))

    return rule


def compact(mask: Tensor) -> Tensor:
    """The mask with expanded dimensions (stride 0) cut to length 1."""
    for d in range(mask.dim()):
        if mask.stride(d) == 0 and mask.shape[d] > 1:
            mask = mask.narrow(d, 0, 1)
    return mask


def _single(call: MaskedOperation) -> Tensor | None:
    """The mask of an operation on one tensor; None of an operation on several."""
    return call.masks[0] if len(call.masks) == 1 else None

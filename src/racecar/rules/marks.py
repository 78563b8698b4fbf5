"""What an operation does to a mask: which positions of its output count, from those of its inputs that do.

A mark is True where a position counts and False where it is padding, with the dimensions of a value, each as long or 1.
What moves elements about moves the mark; what works on every position by itself leaves it; what is made of several
positions counts if one of them does (a mean over tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Size, Tensor

from racecar.rules.operation import FIRST, Operation, Path, reduced_dims

Marks = Sequence[Tensor | None]
"""None: all of a value counts."""


class OnMask(Protocol):
    """One operation of a pass, of whose data some is padding."""

    @property
    def marks(self) -> Marks:
        """Of the inputs that say what the positions of its output are."""

    @property
    def paths(self) -> Sequence[Path]:
        """Where these stand among its arguments."""

    @property
    def operation(self) -> Operation:
        """With its real arguments."""

    @property
    def inputs(self) -> Sequence[Tensor]:
        """All data that it is given."""

    @property
    def shape(self) -> Size:
        """Of its output."""

    def unpadded(self, dims: int) -> Tensor | None:
        """The mark of what a padding before it was given, if that has as many positions as are made, in the last
        ``dims`` dimensions."""

    def is_cut(self) -> bool:
        """Whether the positions that it adds are cut off again, as after a causal convolution."""


MaskWay = Callable[[OnMask], Tensor | list[Tensor] | None]
"""The mark of what an operation makes, or one for each part; None: nobody knows."""


def together(marks: Marks) -> Tensor | None:
    """What is made of several values, element by element, counts if all of them do."""
    found: Tensor | None = None
    for one in marks:
        if one is not None and one is not found:
            found = one if found is None else found & one
    return found


def fit(mark: Tensor | None, shape: Size) -> Tensor | None:
    """A mark as one of a value of that shape, aligned at the last dimension; None if it is not."""
    if mark is None or mark.dim() > len(shape):
        return None
    if mark.dim() < len(shape):
        mark = mark.reshape(*(1,) * (len(shape) - mark.dim()), *mark.shape)
    return mark if all(one in (1, size) for one, size in zip(mark.shape, shape, strict=True)) else None


def mixed(mark: Tensor, dims: Sequence[int]) -> Tensor:
    """Mixed along some dimensions: what comes out counts if any of it does."""
    long = [d for d in dims if mark.shape[d] > 1]
    return mark.amax(long, keepdim=True) if long else mark


def unknown(one: OnMask) -> None:
    """Nobody knows."""


def by_element(one: OnMask) -> Tensor | None:
    """Every element by itself, of one value or of several."""
    return fit(together(one.marks), one.shape)


def in_place(one: OnMask) -> Tensor | None:
    """Positions stay in their places, if there are as many as before."""
    return fit(_only(one), one.shape)


def along_last(one: OnMask) -> Tensor | None:
    """Mixed along the last dimension."""
    mark = _only(one)
    return None if mark is None else mixed(mark, [-1])


def reduced(one: OnMask) -> Tensor | None:
    """Mixed along the dimensions of a reduction, which may drop them."""
    mark = _only(one)
    if mark is None:
        return None
    gone = reduced_dims(one.operation, mark.dim())
    mark = mixed(mark, gone)
    return mark if mark.dim() == len(one.shape) else mark.squeeze(gone)


def moved(one: OnMask) -> Tensor | list[Tensor] | None:
    """Where elements are moved about, and maybe some left out, the mark is moved with them."""
    mark, operation = one.marks[0], one.operation
    if mark is None or not operation.data_first:
        return None
    x, *others = one.inputs
    out = operation.run([mark.expand(x.shape), *others])
    return shortened(out) if isinstance(out, Tensor) else [shortened(part) for part in out if isinstance(part, Tensor)]


def moved_by(move: Callable[[Tensor, Size], Tensor]) -> MaskWay:
    """The same by a function of the mark and the shape of the output."""

    def way(one: OnMask) -> Tensor | None:
        mark = one.marks[0]
        if mark is None or one.paths[0] not in FIRST:
            return None
        return shortened(move(mark.expand(one.inputs[0].shape), one.shape))

    return way


def shortened(mark: Tensor) -> Tensor:
    """Of length 1 where all is alike."""
    for d in range(mark.dim()):
        if mark.stride(d) == 0 and mark.shape[d] > 1:
            mark = mark.narrow(d, 0, 1)
    return mark


def _only(one: OnMask) -> Tensor | None:
    """The mark of an operation on one value."""
    return one.marks[0] if len(one.marks) == 1 else None

"""Which positions of an activation count: a mask of the model's inputs, followed through the model.

What each operation does to it is said by its rule; where nobody can know, the mask is lost, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Size, Tensor

from racecar.plan.causal import causal_cut
from racecar.plan.graph import Op
from racecar.reverse.values import Finder
from racecar.rules.mask_rules import Masks, by_element
from racecar.rules.operation import Operation, Path


class Lost(NamedTuple):
    """Positions that cannot be followed."""

    place: str
    """The operation, and where it stands."""


Mark = Tensor | Lost | None
"""None: all of a value counts."""


def follow(ops: Sequence[Op], find: Finder, inputs: Sequence[Tensor | None]) -> dict[int, Mark]:
    """The marks of all values that ``ops`` make of the model's inputs, which have marks of their own."""
    found: dict[int, Mark] = {}
    for value, at in enumerate(find.layer_graph.values):
        if at.call < 0:
            found[value] = inputs[at.slot]
    for op in ops:
        known = [found.get(value) for _, value in op.position_inputs]
        if all(one is None for one in known):
            continue
        marks = _through(op, known, find, found)
        for i, value in enumerate(op.outputs):
            mark = marks[op.slot + i] if isinstance(marks, list) else marks
            found[value] = Lost(find.layer_graph.place(op)) if mark is None else mark
    return found


def _through(op: Op, known: Sequence[Mark], find: Finder, found: Mapping[int, Mark]) -> Mark | list[Tensor]:
    """The mark of what an operation makes, or one for each part; None where it is lost. ``found``: those before it."""
    if op.func is None:  # written into a part of the first
        return known[0] if len(known) > 1 else None
    lost = next((one for one in known if isinstance(one, Lost)), None)
    way = None if op.rule is None else op.rule.mask
    if way is None or (lost is not None and way is not by_element):
        return lost
    made = way(MaskedCall(op, [None if isinstance(one, Lost) else one for one in known], find, found))
    return lost if made is None else made


class MaskedCall:
    """One operation of a pass, of whose data some is padding: see :class:`racecar.rules.mask_rules.MaskedOperation`."""

    def __init__(self, op: Op, marks: Masks, find: Finder, found: Mapping[int, Mark]) -> None:
        self.masks, self._op, self._find, self._found = marks, op, find, found

    @property
    def paths(self) -> Sequence[Path]:
        return [path for path, _ in self._op.position_inputs]

    @property
    def operation(self) -> Operation:
        return self._op.operation(self._find.calls)

    @property
    def inputs(self) -> Sequence[Tensor]:
        return [self._find.tensor(value) for _, value in self._op.inputs]

    @property
    def shape(self) -> Size:
        return self._find.tensor(self._op.outputs[0]).shape

    def unpadded(self, dims: int) -> Tensor | None:
        maker = self._find.layer_graph.graph.maker.get(self._op.source)
        if maker is None or maker.kind != "pad":
            return None
        mark = self._found.get(maker.source)
        fits = self._find.tensor(maker.source).shape[-dims:] == self.shape[-dims:]
        return mark if fits and isinstance(mark, Tensor) else None

    def is_cut(self) -> bool:
        find = self._find
        cut = causal_cut(find.layer_graph.graph, self._op, lambda one: one.operation(find.calls), find.tensor)
        return cut is not None

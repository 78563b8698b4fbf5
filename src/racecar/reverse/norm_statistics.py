"""Where the reverse pass applies batch norms again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from racecar.plan.entry import Entry
from racecar.plan.norms import Norm, is_batch_norm
from racecar.plan.step import Action


class Spot(NamedTuple):
    """A batch norm in a step of the reverse pass."""

    key: str
    ordinal: int
    """Of the norm."""
    member: int | None
    """Which one of several calls that are taken as one step; None: the step itself."""


Places = dict[tuple[int, int], tuple[Spot, ...]]
"""Layer index and ordinal of a step's operation → the batch norms that the step applies again."""


def places(entries: Sequence[Entry]) -> Places:
    """The batch norms in the steps of a reverse pass."""
    found: Places = {}
    for entry in entries:
        layer = entry.layer
        assert layer is not None
        for step in entry.steps:
            if step.action is not Action.REDO:
                continue
            key = f"{layer.name}:{layer.redo.index(step.op)}"
            if is_batch_norm(step.op):
                spots = [Spot(key, step.op.ordinal, None)]
            else:
                norms = [(i, op) for i, op in enumerate(step.op.members) if is_batch_norm(op)]
                spots = [Spot(f"{key}.{i}", op.ordinal, i) for i, op in norms]
            if spots:
                found[layer.index, step.op.ordinal] = tuple(spots)
    return found


def norms_at(places: Places, norms: Mapping[int, Norm]) -> dict[str, Norm]:
    """By key, what is known of the norm there."""
    return {spot.key: norms[spot.ordinal] for spots in places.values() for spot in spots}

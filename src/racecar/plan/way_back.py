"""The way of the reverse pass from outputs of a model back to its input, without a forward pass beside it.

It goes by the rules of mode "full". Where several ways meet, at a fork of the forward pass, their mean is taken on. A
join leads on only if all tensors but one that it joins are given. :mod:`racecar.plan.walk_back` finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from racecar.plan.joins import Join
from racecar.plan.layer import Layer
from racecar.plan.step import Step
from racecar.rules.roles import Role
from racecar.support.table import table
from racecar.watch.names import shown


class Leg(NamedTuple):
    """The steps from one place on the way down to the next layer, join or input."""

    start: str
    """The name of the place where it starts."""
    steps: tuple[Step, ...]
    to: int
    """The value at which it ends."""

    @property
    def selects(self) -> bool:
        """True if a selection is undone: zeros stand where nothing was selected."""
        return any(step.op.role is Role.SELECT for step in self.steps)


class Stop(NamedTuple):
    """A layer or a join on the way."""

    name: str
    kind: str
    value: int
    """Its output."""
    arriving: tuple[Leg, ...]
    """The legs that end there; their mean is taken on."""
    layer: Layer | None
    join: Join | None
    onward: Leg
    """The leg that leads on from d of the layer, or from the tensor of the join that is not given."""


class End(NamedTuple):
    """A value at which the way ends: d of a layer, or an input of the model."""

    value: int
    arriving: tuple[Leg, ...]


@dataclass(frozen=True, eq=False, repr=False)
class WayBack:
    """The way of the reverse pass from some outputs back; printed as a table."""

    starts: tuple[tuple[int, Leg], ...]
    """(value, leg) of every output, or of the layer, at which it starts."""
    stops: tuple[Stop, ...]
    """The layers and joins on it, last first."""
    ends: tuple[End, ...]
    """In forward order."""
    left_out: tuple[str, ...] = ()
    """The outputs that are not followed."""

    def values(self) -> list[int]:
        """The values whose shapes are needed."""
        legs = [*(leg for _, leg in self.starts), *(stop.onward for stop in self.stops)]
        steps = [step for leg in legs for step in leg.steps]
        steps += [step for stop in self.stops if stop.layer is not None for step in stop.layer.into_d]
        joins = [stop.join for stop in self.stops if stop.join is not None]
        values = [value for value, _ in self.starts]
        values += [value for join in joins for value in (join.op.source, *(value for _, value in join.given))]
        values += [value for _, op in steps for value in (op.source, *op.outputs[:1])]
        return list(dict.fromkeys(values))

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The rows of the table: (place, kind, where its tensor comes from, note)."""
        rows = [(leg.start, "", "given", "") for _, leg in self.starts]
        rows += [(name, "", "-", "not followed") for name in self.left_out]
        for stop in self.stops:
            note = "" if stop.join is None else "its other tensors are given"
            rows.append((shown(stop.name), stop.kind, _from(stop.arriving), note))
        return [*rows, *(("result", "", _from(end.arriving), "") for end in self.ends)]

    def __str__(self) -> str:
        return table(("place", "kind", "from", "note"), self.rows())

    __repr__ = __str__


def _from(legs: Sequence[Leg]) -> str:
    return ("" if len(legs) == 1 else "mean of ") + ", ".join(leg.start for leg in legs)

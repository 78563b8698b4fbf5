"""What a search tries for every method, and where it goes on when the best lies at the edge of that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from racecar_lab.experiments.streams.config import method_of
from racecar_lab.search_space import Search
from racecar_lab.streams import Method

MOST = 80
"""Settings that are tried of a method at most, those beyond the edge among them."""
AXES = ("lr", "coefficient", "second")
Point = tuple[float, ...]
"""Of these; 0 where a method has none."""


@dataclass(frozen=True)
class StreamSearch(Search):
    """The 20 settings of every method; learning rates and strengths that a user gives take the place of its own."""

    @property
    def chosen(self) -> tuple[str, ...]:
        return "lr", "second"

    def candidates(self, name: str, optimiser: str, given: Mapping[str, float] | None = None) -> list[dict[str, float]]:
        method = method_of(name)
        known, rates = method.settings(optimiser), self.lrs.get(optimiser)
        pairs = dict.fromkeys((one.strength, one.second) for one in known)
        if some := self.coefficients.get(name):
            pairs = dict.fromkeys((strength, usual(method)[1]) for strength in some)
        every = [(one.lr, one.strength, one.second) for one in known]
        if rates or some:
            every = [(lr, *pair) for lr in rates or dict.fromkeys(one.lr for one in known) for pair in pairs]
        return [_candidate(method, *one) for one in every]

    def beyond(self, name: str, chosen: Mapping[str, Any]) -> list[dict[str, float]]:
        """Half a decade further on each axis on which the best has no neighbour on one side, all else being the same:
        another learning rate with all that was tried besides, another strength or second number with all learning
        rates. Nothing where 0 is the end, or ``MOST`` would be exceeded."""
        tried, method = chosen["tried"], method_of(name)
        points = [tuple(float(row[axis] or 0) for axis in AXES) for row in tried]
        best = tuple(float(chosen.get(axis) or 0) for axis in AXES)
        added: dict[Point, None] = {}
        for i, axis in enumerate(AXES):
            if not best[i] or len({point[i] for point in points}) < 2:
                continue
            rising = sorted(point[i] for point in points if _without(point, i) == _without(best, i))
            lines = [(rising, False), (rising[::-1], True)]
            for value in (one for line, up in lines if line[0] == best[i] for one in _further(line, up)):
                others = [point for point in points if axis == "lr" or _same_other(point, best, i)]
                added |= dict.fromkeys((*point[:i], value, *point[i + 1 :]) for point in others)
        new = [point for point in added if point not in points]
        if len(points) + len(new) > MOST:
            return []
        return [_candidate(method, *point) for point in new]


def usual(method: Method) -> tuple[float, float]:
    """Strength and second number of a method where nobody chose: those in the middle of what is tried."""
    return method.strengths[len(method.strengths) // 2] if method.strengths else (0.0, 0.0)


def _candidate(method: Method, lr: float, strength: float, second: float) -> dict[str, float]:
    return {"lr": lr, "second": second, **({"coefficient": strength} if method.strengths else {})}


def _without(point: Point, i: int) -> Point:
    return (*point[:i], *point[i + 1 :])


def _same_other(point: Point, best: Point, i: int) -> bool:
    """Whether the one of strength and second number that is not the i-th is that of the best."""
    return point[3 - i] == best[3 - i]


def _further(values: Sequence[float], up: bool) -> list[float]:
    """Beyond the first of some values, the others following it, by half a decade in steps as they have."""
    step = math.log10(values[0] / values[1]) if len(values) > 1 and values[1] else 0.5
    if (count := round(0.5 / abs(step))) > 1:
        return [values[0] * 10 ** (step * (i + 1)) for i in range(count)]
    return [half_decade(values[0], up)]


def half_decade(value: float, up: bool) -> float:
    """The next of …, 0.1, 0.3, 1, 3, 10, … above or below."""
    power = math.floor(math.log10(value) + 1e-9)
    first = value / 10**power < 2
    if up:
        return float(f"3e{power}") if first else float(f"1e{power + 1}")
    return float(f"3e{power - 1}") if first else float(f"1e{power}")

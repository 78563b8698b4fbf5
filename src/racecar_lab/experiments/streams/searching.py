"""The settings that a search tries for each method, and those that it adds if the best lies at the edge of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from racecar_lab.experiments.streams.config import method_of
from racecar_lab.search_space import Search
from racecar_lab.streams import Method

MOST = 80
"""Largest number of settings that are tried for a method, those beyond the edge among them."""
AXES = ("lr", "coefficient", "second")
"""Fields of a setting in records, where the strength is called "coefficient"."""
Point = tuple[float, ...]
"""A setting: its numbers in the order of ``AXES``, 0 where a method has none."""


@dataclass(frozen=True)
class StreamSearch(Search):
    """A search over the 20 settings of every method. A user's learning rates and strengths replace them."""

    @property
    def chosen(self) -> tuple[str, ...]:
        return "lr", "second"

    def candidates(self, name: str, optimiser: str, given: Mapping[str, float] | None = None) -> list[dict[str, float]]:
        """The settings of a method that are tried first."""
        method = method_of(name)
        defaults, rates = method.settings(optimiser), self.lrs.get(optimiser)
        pairs = dict.fromkeys((setting.strength, setting.second) for setting in defaults)
        if strengths := self.coefficients.get(name):
            pairs = dict.fromkeys((strength, usual(method)[1]) for strength in strengths)
        points = [tuple(setting) for setting in defaults]
        if rates or strengths:
            lrs = rates or dict.fromkeys(setting.lr for setting in defaults)
            points = [(lr, *pair) for lr in lrs for pair in pairs]
        return [_candidate(method, *point) for point in points]

    def beyond(self, name: str, chosen: Mapping[str, Any]) -> list[dict[str, float]]:
        """The settings that are tried next, because the best one so far lies at an edge of those that were tried.

        For each number of the best setting that is the smallest or largest of those tried with the same other numbers,
        the next half decade beyond is added: a learning rate with all pairs of strength and second number, a strength
        (or second number) with all learning rates and the best second number (or strength). Nothing is added beyond 0,
        or if it made more than ``MOST`` settings.
        """
        tried, method = chosen["tried"], method_of(name)
        points = [tuple(float(row[axis] or 0) for axis in AXES) for row in tried]
        best = tuple(float(chosen.get(axis) or 0) for axis in AXES)
        added: dict[Point, None] = {}
        for i, axis in enumerate(AXES):
            if not best[i] or len({point[i] for point in points}) < 2:
                continue
            rising = sorted(point[i] for point in points if _without(point, i) == _without(best, i))
            lines = [(rising, False), (rising[::-1], True)]
            for value in (value for line, up in lines if line[0] == best[i] for value in _further(line, up)):
                others = [point for point in points if axis == "lr" or _same_other(point, best, i)]
                added |= dict.fromkeys((*point[:i], value, *point[i + 1 :]) for point in others)
        new = [point for point in added if point not in points]
        if len(points) + len(new) > MOST:
            return []
        return [_candidate(method, *point) for point in new]


def usual(method: Method) -> tuple[float, float]:
    """Strength and second number of a method if no search chose them: the middle ones of those that are tried."""
    return method.strengths[len(method.strengths) // 2] if method.strengths else (0.0, 0.0)


def _candidate(method: Method, lr: float, strength: float, second: float) -> dict[str, float]:
    """A setting as the fields that a search tries; the coefficient only for methods with a strength."""
    return {"lr": lr, "second": second, **({"coefficient": strength} if method.strengths else {})}


def _without(point: Point, i: int) -> Point:
    """The point without its i-th number."""
    return (*point[:i], *point[i + 1 :])


def _same_other(point: Point, best: Point, i: int) -> bool:
    """Whether strength (if i is 2) or second number (if i is 1) of a point are those of the best point."""
    return point[3 - i] == best[3 - i]


def _further(values: Sequence[float], up: bool) -> list[float]:
    """The values that continue a series beyond its first value, for half a decade, in steps as large as that between
    its first two values."""
    step = math.log10(values[0] / values[1]) if len(values) > 1 and values[1] else 0.5
    if (count := round(0.5 / abs(step))) > 1:
        return [values[0] * 10 ** (step * (i + 1)) for i in range(count)]
    return [half_decade(values[0], up)]


def half_decade(value: float, up: bool) -> float:
    """The next value of the series …, 0.1, 0.3, 1, 3, 10, … above or below ``value``."""
    power = math.floor(math.log10(value) + 1e-9)
    first = value / 10**power < 2
    if up:
        return float(f"3e{power}") if first else float(f"1e{power + 1}")
    return float(f"3e{power - 1}") if first else float(f"1e{power}")

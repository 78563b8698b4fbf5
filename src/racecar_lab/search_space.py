"""What a search tries: learning rates, λs and more, with the same budget for every variant."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from racecar_lab.training.variants import variant

Setting = dict[str, float]
"""One learning rate ``lr``, λ as ``weight`` where the variant has one, and values of other fields."""


@dataclass(frozen=True)
class Search:
    """What is tried. A variant with a λ tries each of its ``weights`` with each of ``lrs``; one without
    tries as many learning rates, spread over the same range. All of this with each combination of ``fields``. An
    experiment that builds on another takes learning rate and λ from its search and tries ``fields``."""

    lrs: Mapping[str, tuple[float, ...]]
    """By optimiser."""
    weights: Mapping[str, tuple[float, ...]]
    """By variant."""
    sum_weights: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By variant, instead of ``weights`` if the reverse loss is a plain sum (scale "sum"), as the paper's: λ then has
    another unit."""
    fields: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """More fields of the configuration, such as weight_decay, with what is tried for every variant."""
    own: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    """Variant → fields that it alone tries, such as Pre's pretrain_lr, with so many λs fewer."""
    metric: str = "valid_accuracy"
    higher: bool = True
    """Whether more of it is better."""
    limit: tuple[str, float] | None = None
    """Another metric, an error, and a share: what has more than so much above the smallest that the variant reached is
    not chosen, however good it is otherwise."""
    beside: tuple[str, ...] = ()
    """More metrics that its table of what was tried has."""
    stages: tuple[str, ...] = ("A",)
    """It is averaged over these."""
    apart: bool = False
    """Whether every stage has settings of its own instead, which then come from no other stage of the experiment."""
    valid: float = 0.1
    """Share of the training set held out meanwhile."""
    most: int = 0
    """Largest number of settings that are tried for a variant if the search goes on beyond an edge; 0: it does not."""
    seeds: int = 3
    first_seed: int = 1000
    """Seeds that no published run uses."""

    @property
    def judged_by(self) -> str:
        """In words."""
        if self.limit is None:
            return self.metric
        name, share = self.limit
        return f"{self.metric} where {name} is within {100 * share:g} % of the smallest"

    @property
    def chosen(self) -> tuple[str, ...]:
        """The fields of the configuration that it chooses."""
        return "lr", *self.fields, *dict.fromkeys(field for fields in self.own.values() for field in fields)

    def candidates(self, name: str, optimiser: str, base: Mapping[str, float] | None = None) -> list[Setting]:
        """The settings of a variant that are tried first, as many for every variant.

        Args:
            base: the setting of the variant that another search chose, which this one adds ``fields`` to.
        """
        if base is not None:
            return _grid({**{axis: (value,) for axis, value in base.items()}, **self.fields})
        if optimiser not in self.lrs:
            raise ValueError(f"the search knows no learning rates for {optimiser}, but for {', '.join(self.lrs)}")
        lrs = self.lrs[optimiser]
        grids = {key: {"weight": values, **self.own.get(key, {})} for key, values in self.weights.items()}
        counts = {key: math.prod(map(len, grid.values())) for key, grid in grids.items()}
        count = max(counts.values(), default=1)
        if not variant(name).meaning:
            return _grid({"lr": _spread(lrs, len(lrs) * count), **self.fields})
        if not self.weights.get(name):
            raise ValueError(f"the search has no weights for {name}, but for {', '.join(self.weights)}")
        if counts[name] != count:
            tried = f"{counts[name]} weights" + " and fields of its own" * (name in self.own)
            raise ValueError(f"the search gives {name} {tried} and others {count}")
        return _grid({**grids[name], "lr": lrs, **self.fields})

    def beyond(self, chosen: Mapping[str, Any]) -> list[Setting]:
        """The settings that are tried next, because the best one so far lies at an edge of those that were tried.

        For each number of the best setting that is the smallest or largest of those tried with the same other numbers,
        the next half decade beyond is added: a learning rate with all the other numbers that were tried, another number
        with all learning rates and the best of the rest. Nothing is added beyond 0, nor if that made more than ``most``
        settings.

        Args:
            chosen: the best setting, and under "tried" all settings; nothing is there if each cluster or stage has its
                own.
        """
        axes = ("lr", "weight", *self.chosen[1:])
        tried = [{axis: row[axis] for axis in axes if row.get(axis) is not None} for row in chosen.get("tried", ())]
        new: list[Setting] = []
        for axis in axes:
            if not chosen.get(axis) or len({setting[axis] for setting in tried}) < 2:
                continue
            line = sorted({setting[axis] for setting in tried if _agree(setting, chosen, but=(axis,))})
            beside = [setting for setting in tried if axis == "lr" or _agree(setting, chosen, but=(axis, "lr"))]
            for values, sign in ((line, -1), (line[::-1], 1)):
                if values[0] == chosen[axis]:
                    new += [{**setting, axis: value} for value in _further(values, sign) for setting in beside]
        new = [setting for i, setting in enumerate(new) if setting not in tried and setting not in new[:i]]
        return new if len(tried) + len(new) <= self.most else []


def _grid(axes: Mapping[str, Sequence[float]]) -> list[Setting]:
    """Every value of each axis with every value of the others."""
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _spread(values: Sequence[float], count: int) -> list[float]:
    """So many values from the smallest to the largest, in equal ratios."""
    low, high = min(values), max(values)
    return [low * (high / low) ** (i / max(1, count - 1)) for i in range(count)]


def _agree(setting: Setting, best: Mapping[str, Any], but: Collection[str]) -> bool:
    """True if a setting has the numbers of the best one, except those named by ``but``."""
    return all(value == best[axis] for axis, value in setting.items() if axis not in but)


def _further(values: Sequence[float], sign: int) -> list[float]:
    """The values that continue a series beyond its first value, for half a decade up (sign 1) or down (−1), in steps as
    large as that between its first two values."""
    step = abs(math.log10(values[0] / values[1])) if len(values) > 1 and values[1] else 0.5
    count = round(0.5 / step)
    if count > 1:
        return [values[0] * 10 ** (sign * step * (i + 1)) for i in range(count)]
    return [half_decade(values[0], sign)]


def half_decade(value: float, sign: int) -> float:
    """The next value of the series …, 0.1, 0.3, 1, 3, 10, … above (sign 1) or below (−1) ``value``."""
    return float(f"{10 ** ((round(2 * math.log10(value)) + sign) / 2):.0e}")

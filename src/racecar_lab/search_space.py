"""The settings that a hyperparameter search tries: learning rates, λs and more, as many for every variant."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from racecar_lab.training.variants import variant

Setting = dict[str, float]
"""One setting that a search tries: learning rate ``lr``, λ as ``weight`` if the variant has one, and values of other
fields."""


@dataclass(frozen=True)
class Search:
    """The settings that a search tries, and the metric by which it chooses. A variant with a λ tries each of its
    ``weights`` with each of ``lrs``; one without tries as many learning rates, spread over the same range. All of this
    with each combination of ``fields``. An experiment that builds on another takes learning rate and λ from its search
    and tries ``fields``."""

    lrs: Mapping[str, tuple[float, ...]]
    """Optimiser → learning rates to try."""
    weights: Mapping[str, tuple[float, ...]]
    """Variant → λs to try."""
    sum_weights: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Variant → λs to try instead of ``weights`` if the reverse loss is a plain sum (scale "sum"), as the paper's: λ
    then has another unit."""
    fields: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """More fields of the configuration, such as weight_decay → values that every variant tries."""
    own: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)
    """Variant → fields that it alone tries, such as Pre's pretrain_lr → their values. It has fewer λs in return, so
    that it tries as many settings as the others."""
    metric: str = "valid_accuracy"
    higher: bool = True
    """True if the setting with the largest ``metric`` is chosen; False: the one with the smallest."""
    limit: tuple[str, float] | None = None
    """Name of another metric, an error, and a share. A setting whose error is more than (1 + share) times the smallest
    error of the variant is not chosen, however good its ``metric`` is. None: no limit."""
    beside: tuple[str, ...] = ()
    """Names of more metrics that are listed for every setting that was tried; the choice does not depend on them."""
    stages: tuple[str, ...] = ("A",)
    """Names of the stages over which ``metric`` is averaged."""
    apart: bool = False
    """True if the best setting is chosen for each stage by itself. No stage may then start from another one of the same
    experiment. False: one setting for all stages."""
    valid: float = 0.1
    """Share of the training set that is held out during the search, to measure ``metric`` on."""
    most: int = 0
    """Maximal number of settings that are tried for a variant. If it is not 0 and the best setting lies at an edge of
    those that were tried, the search goes on beyond that edge; 0: it never does."""
    seeds: int = 3
    first_seed: int = 1000
    """First seed of the search, whose seeds no published run uses."""

    @property
    def judged_by(self) -> str:
        """The criterion of the choice in words: the metric, and the limit if there is one."""
        if self.limit is None:
            return self.metric
        name, share = self.limit
        return f"{self.metric} where {name} is within {100 * share:g} % of the smallest"

    @property
    def chosen(self) -> tuple[str, ...]:
        """Names of the configuration fields for which the search chooses values."""
        return "lr", *self.fields, *dict.fromkeys(field for fields in self.own.values() for field in fields)

    def candidates(self, name: str, optimiser: str, base: Mapping[str, float] | None = None) -> list[Setting]:
        """The settings that a variant tries first, as many for every variant.

        Args:
            base: the setting that an earlier search chose for the variant; only ``fields`` are then tried beside it.
                None: there was none.
        """
        if base is not None:
            return _grid({**{axis: (value,) for axis, value in base.items()}, **self.fields})
        if optimiser not in self.lrs:
            raise ValueError(f"the search knows no learning rates for {optimiser}, but for {', '.join(self.lrs)}")
        lrs = self.lrs[optimiser]
        grids = {key: {"weight": values, **self.own.get(key, {})} for key, values in self.weights.items()}
        counts = {key: math.prod(map(len, grid.values())) for key, grid in grids.items()}
        count = max(counts.values(), default=1)
        if name not in self.weights and not variant(name).meaning:
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
    """All combinations of one value from each axis, as settings; ``axes`` is name → values."""
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _spread(values: Sequence[float], count: int) -> list[float]:
    """As many numbers as ``count`` says, from the smallest to the largest of ``values``, in equal ratios."""
    low, high = min(values), max(values)
    return [low * (high / low) ** (i / max(1, count - 1)) for i in range(count)]


def _agree(setting: Setting, best: Mapping[str, Any], but: Collection[str]) -> bool:
    """True if a setting has the numbers of the best one, except those named by ``but``."""
    return all(value == best[axis] for axis, value in setting.items() if axis not in but)


def _further(values: Sequence[float], sign: int) -> list[float]:
    """Values that continue a grid beyond ``values[0]`` for half a decade: upwards (sign 1, values in descending
    order) or downwards (sign −1, ascending), by the factor between its first two values."""
    step = abs(math.log10(values[0] / values[1])) if len(values) > 1 and values[1] else 0.5
    count = round(0.5 / step)
    if count > 1:
        return [values[0] * 10 ** (sign * step * (i + 1)) for i in range(count)]
    return [half_decade(values[0], sign)]


def half_decade(value: float, sign: int) -> float:
    """The next value of the series …, 0.1, 0.3, 1, 3, 10, … above (sign 1) or below (−1) ``value``."""
    return float(f"{10 ** ((round(2 * math.log10(value)) + sign) / 2):.0e}")

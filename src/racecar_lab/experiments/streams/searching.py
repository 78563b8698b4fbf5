"""The settings that a search tries for each method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from racecar_lab.experiments.streams.config import method_of
from racecar_lab.search_space import Search, Setting
from racecar_lab.streams import Method
from racecar_lab.streams.method import MethodSetting


@dataclass(frozen=True)
class StreamSearch(Search):
    """A search over the 20 settings of every method of streams. A user's learning rates and weights replace them."""

    most: int = 80

    @property
    def chosen(self) -> tuple[str, ...]:
        return "lr", "second"

    def candidates(self, name: str, optimiser: str, base: Mapping[str, float] | None = None) -> list[Setting]:
        """The settings of a method that a search tries first. ``base`` is not used: no search on streams builds on
        another."""
        method = method_of(name)
        settings = method.settings(optimiser)
        rates, weights = self.lrs.get(optimiser), self.weights.get(name)
        if rates or weights:
            lrs = rates or dict.fromkeys(setting.lr for setting in settings)
            usual_pairs = dict.fromkeys((setting.weight, setting.second) for setting in settings)
            pairs = [(weight, usual(method)[1]) for weight in weights] if weights else usual_pairs
            settings = tuple(MethodSetting(lr, *pair) for lr, pair in product(lrs, pairs))
        return [
            {"lr": lr, "second": second, **({"weight": weight} if method.weights else {})}
            for lr, weight, second in settings
        ]


def usual(method: Method) -> tuple[float, float]:
    """Weight and second number of a method if no search chose them: the middle ones of those that a search tries."""
    return method.weights[len(method.weights) // 2] if method.weights else (0.0, 0.0)

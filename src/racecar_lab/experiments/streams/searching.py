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
    """A search over the 20 settings of every method. A user's learning rates and strengths replace them."""

    most: int = 80

    @property
    def chosen(self) -> tuple[str, ...]:
        return "lr", "second"

    def candidates(self, name: str, optimiser: str, base: Mapping[str, float] | None = None) -> list[Setting]:
        """The settings of a method that are tried first; the strength of a method is its coefficient."""
        method = method_of(name)
        settings = method.settings(optimiser)
        rates, strengths = self.lrs.get(optimiser), self.coefficients.get(name)
        if rates or strengths:
            lrs = rates or dict.fromkeys(setting.lr for setting in settings)
            usual_pairs = dict.fromkeys((setting.strength, setting.second) for setting in settings)
            pairs = [(strength, usual(method)[1]) for strength in strengths] if strengths else usual_pairs
            settings = tuple(MethodSetting(lr, *pair) for lr, pair in product(lrs, pairs))
        return [
            {"lr": lr, "second": second, **({"coefficient": strength} if method.strengths else {})}
            for lr, strength, second in settings
        ]


def usual(method: Method) -> tuple[float, float]:
    """Strength and second number of a method if no search chose them: the middle ones of those that are tried."""
    return method.strengths[len(method.strengths) // 2] if method.strengths else (0.0, 0.0)

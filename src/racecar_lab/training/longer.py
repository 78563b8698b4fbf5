"""Std once more, trained for as many seconds as RR takes: what a fair comparison has beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from racecar_lab.config import Config


@dataclass(frozen=True, kw_only=True)
class LongerConfig(Config):
    """Experiments say what RR costs on their net."""

    cost: float = 1.0
    """What a step of RR costs, in steps of Std. Std is trained once more, so many times as long; 1: it is not."""
    longer: bool = False
    """This is that training of Std; other variants have none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cost < 1:
            raise ValueError(f"cost must be at least 1, not {self.cost!r}")

    @property
    def long_epochs(self) -> int:
        """Rounded up: Std gets no fewer seconds than RR."""
        return math.ceil(self.cost * self.epochs)


L = TypeVar("L", bound=LongerConfig)


def with_longer(config: L) -> Sequence[L]:
    """A configuration, and that of the longer training, for which a search has no use."""
    alone = config.longer or config.valid or config.cost == 1
    return [config] if alone else [config, replace(config, longer=True)]

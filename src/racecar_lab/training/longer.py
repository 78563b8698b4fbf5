"""A longer training of Std, for as many seconds as RR takes: the control for RR's cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from racecar_lab.config import Config


@dataclass(frozen=True, kw_only=True)
class LongerConfig(Config):
    """Settings of an experiment that may train Std a second time, for as many seconds as RR takes."""

    cost: float = 1.0
    """Time of a step of RR divided by that of a step of Std, on the experiment's net. Std is trained a second time, for
    this many times the epochs; 1: it is not."""
    longer: bool = False
    """True if this is the second, longer training, which only Std has."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cost < 1:
            raise ValueError(f"cost must be at least 1, not {self.cost!r}")

    @property
    def long_epochs(self) -> int:
        """Number of epochs of the longer training of Std, rounded up, so that Std gets no fewer seconds than RR."""
        return math.ceil(self.cost * self.epochs)


L = TypeVar("L", bound=LongerConfig)


def with_longer(config: L) -> Sequence[L]:
    """A configuration, and after it that of the longer training of Std. In a search, if the cost is 1, and if it is
    that of the longer training already, the configuration alone."""
    alone = config.longer or config.valid or config.cost == 1
    return [config] if alone else [config, replace(config, longer=True)]

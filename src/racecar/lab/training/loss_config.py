"""The reverse loss as a setting of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from racecar.lab.config import Config
from racecar.run.settings import Settings
from racecar.run.terms import GRADIENTS, REDUCTIONS, SCALES

LOSS = ("scale", "gradient", "reduction")
"""Arguments of ``Racecar`` that say which loss it is."""
PAPER = {"scale": "sum", "gradient": "both", "reduction": "sum"}
"""The paper's own."""


@dataclass(frozen=True, kw_only=True)
class LossConfig(Config):
    """Which reverse loss RR, lRR and RR1 have: that of ``Racecar`` itself, unless the user says otherwise."""

    scale: str = Settings.scale
    gradient: str = Settings.gradient
    reduction: str = Settings.reduction
    strength: float = cast(float, Settings.weight)
    """λ, times the mean of the terms over the constrained layers; with reduction "sum", times their sum."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("scale", SCALES), ("gradient", GRADIENTS), ("reduction", REDUCTIONS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
        self.refuse_negative("strength")

    @property
    def loss(self) -> dict[str, str]:
        """For ``Racecar``."""
        return {name: getattr(self, name) for name in LOSS}

"""The reverse loss as a setting of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from racecar_lab.config import Config

LOSS = ("scale", "gradient", "reduction")
"""Names of the arguments of ``Racecar`` that define the reverse loss."""
PAPER = {"scale": "sum", "gradient": "both", "reduction": "sum"}
"""Arguments of ``Racecar`` for the paper's reverse loss."""
DEFAULT = {"scale": "relative", "gradient": "reverse", "reduction": "mean"}
"""Arguments of ``Racecar`` for its default reverse loss, repeated here: ids of results depend on them, and must not
change with the library."""
FIRST_LOSS = {"scale": "relative", "gradient": "both", "reduction": "sum"}
"""Arguments of ``Racecar`` for the reverse loss of results whose records do not name it: they are older than these
settings."""


@dataclass(frozen=True, kw_only=True)
class LossConfig(Config):
    """Settings of an experiment with the reverse loss of RR, lRR and RR1; the defaults are those of ``Racecar``."""

    unnamed: ClassVar[Mapping[str, Any]] = {**Config.unnamed, **FIRST_LOSS}
    scale: Literal["relative", "ratio", "anchored", "mean", "sum"] = "relative"
    gradient: Literal["both", "reverse", "weights"] = "reverse"
    reduction: Literal["mean", "sum"] = "mean"
    weight: float = 0.001
    """λ, the weight of the reverse loss, which is the mean of the losses of the constrained layers, or, with reduction
    "sum", their sum."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("weight")

    @property
    def loss(self) -> dict[str, str]:
        """Arguments of ``Racecar`` for the reverse loss of these settings."""
        return {name: getattr(self, name) for name in LOSS}


LOSSES: dict[str, dict[str, str]] = {
    "the paper's": PAPER,
    "the default": DEFAULT,
    "that of before": {name: FIRST_LOSS[name] for name in ("scale", "gradient")},
}
"""Name of a reverse loss in reports → its arguments of ``Racecar``."""


def loss_name(arguments: Mapping[str, object]) -> str | None:
    """The name in ``LOSSES`` of the reverse loss with these arguments of ``Racecar``; None if it has none."""
    return next((name for name, loss in LOSSES.items() if loss.items() <= arguments.items()), None)

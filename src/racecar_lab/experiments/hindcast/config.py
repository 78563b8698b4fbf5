"""The settings of hindcast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from racecar_lab.config import Schedule
from racecar_lab.datasets.waves import SYSTEMS, System
from racecar_lab.training.loss_config import LossConfig


@dataclass(frozen=True, kw_only=True)
class HindcastConfig(LossConfig):
    """Settings of hindcast.

    With ``speed`` 2, waves that start from drops change by 0.7 of their size in a step (``persistence_1``), so that a
    forecast of no change is a bad one, and the six convolutions see six cells to each side, three times what is needed.
    """

    system: Literal["waves", "advection"] = "waves"
    viscosity: float = 0.0
    """Viscosity, in cells² per step; the larger it is, the sooner the system forgets."""
    speed: float = 2.0
    """Cells that waves, or what is carried, travel in a step."""
    size: int = 64
    """Rows and columns of the grid; an even number."""
    samples: int = 1024
    """Number of training samples, each a step of a trajectory of its own, at a random time."""
    tests: int = 64
    """Number of test trajectories, which start from drops."""
    width: int = 32
    """Channels between two convolutions."""
    epochs: int = 30
    lr: float = 3e-3
    batch: int = 16
    schedule: Schedule = "onecycle"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("viscosity")
        if not self.speed > 0:
            raise ValueError(f"speed must be greater than 0, not {self.speed!r}")
        if self.size < 16 or self.size % 2:
            raise ValueError(f"size must be an even number of at least 16, not {self.size!r}")
        for name in ("samples", "tests", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")

    @property
    def solver(self) -> System:
        """The system, with its exact solution."""
        return SYSTEMS[self.system](self.speed, self.viscosity)

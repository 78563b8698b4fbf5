"""The settings of smoke-autoencoder."""

from __future__ import annotations

from dataclasses import dataclass

from racecar_lab.config import Schedule
from racecar_lab.experiments.smoke.config import SmokeConfig


@dataclass(frozen=True, kw_only=True)
class SmokeAutoencoderConfig(SmokeConfig):
    """The GAN is that of smoke."""

    autoencoder_epochs: int = 100
    """Of each autoencoder, without regulariser."""
    autoencoder_lr: float = 1e-3
    autoencoder_schedule: Schedule = "onecycle"
    """With a slow start: without one they died on other seeds, at learning rates that a search had chosen."""
    pictures: int = 240
    """Of real smoke, that are trained on, at most: a tenth of the paper's 2500, about."""
    looks: int = 20
    """How often the error on what is held out is looked at during the training of an autoencoder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("autoencoder_epochs", "looks", "pictures"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if not self.autoencoder_lr > 0:
            raise ValueError(f"autoencoder_lr must be greater than 0, not {self.autoencoder_lr!r}")

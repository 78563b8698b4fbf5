"""The settings of smoke-autoencoder."""

from __future__ import annotations

from dataclasses import dataclass

from racecar_lab.config import Schedule
from racecar_lab.experiments.smoke.config import SmokeConfig


@dataclass(frozen=True, kw_only=True)
class SmokeAutoencoderConfig(SmokeConfig):
    """Settings of smoke-autoencoder: those of smoke, for its GAN, and those of the autoencoders."""

    autoencoder_epochs: int = 100
    """Number of epochs of each autoencoder, which trains without regulariser."""
    autoencoder_lr: float = 1e-3
    """Learning rate of the autoencoders."""
    autoencoder_schedule: Schedule = "onecycle"
    """Schedule of the autoencoders' learning rate, with warm-up: without it, nets of other seeds died at learning rates
    that a search had chosen."""
    pictures: int = 240
    """Largest number of training pictures of real smoke: about a tenth of the paper's 2500."""
    looks: int = 20
    """Number of times that the error on held-out pictures is recorded while an autoencoder trains."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("autoencoder_epochs", "looks", "pictures"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if not self.autoencoder_lr > 0:
            raise ValueError(f"autoencoder_lr must be greater than 0, not {self.autoencoder_lr!r}")

"""The settings of smoke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from racecar_lab.config import Schedule
from racecar_lab.datasets.smoke import FRAMES, PLUMES
from racecar_lab.networks.smoke import CRITIC, WIDTHS
from racecar_lab.training.loss_config import LossConfig

TESTED = 4
"""Plumes, the last ones, that nothing but tests look at."""


@dataclass(frozen=True, kw_only=True)
class SmokeConfig(LossConfig):
    """The paper gives no numbers for any of this but the share of frames.

    Loss weights were fixed with Std alone, before any regulariser was judged, so that its super-resolution learns: a
    small net (widths 8, 16, 16, 8, 8; 30 epochs, lr 3e-3), on plumes that seed 1000 holds out. With adversarial = 0.1
    and 1 it had a third less L2 than bicubic interpolation; 1 had the nearer spectrum and lost SSIM, so it is 0.1.
    All first looks, of Std and of RR, were at other plumes than those that are made now (``plumes.SEED``). Learning
    rates and λ are for a search. Of 100, 200, 400 and 800 epochs 800 are the fewest with which Std's L2 on held-out
    plumes is within 2 % of the best (``smoke_epochs`` of benchmarks/published.sh); more were not tried.
    """

    share: float = 0.1
    """Of all frames, that are trained on: drawn from the plumes that are not tested on."""
    tests: int = FRAMES
    """Frames of each held-out plume that are measured, evenly spread; no more than there are."""
    widths: tuple[int, ...] = WIDTHS
    """Channels after the generator's first five layers."""
    critic_widths: tuple[int, ...] = CRITIC
    """Channels of the discriminator's hidden layers."""
    start: Literal["torch", "he"] = "he"
    """First weights of the convolutions: PyTorch's own, or He's."""
    pixel: float = 100.0
    """What the mean square error of pixels is multiplied by."""
    feature: float = 1.0
    """That of the discriminator's features, mean over its layers."""
    adversarial: float = 0.1
    """The non-saturating loss of the generator."""
    epochs: int = 800
    lr: float = 1e-3
    critic_lr: float = 2e-4
    """Of the discriminator."""
    batch: int = 16
    fraction: float = 1 / 4
    """Four pictures of a batch."""
    schedule: Schedule = "cosine"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_no_part("share")
        self.refuse_negative("pixel", "feature", "adversarial")
        if self.tests < 1:
            raise ValueError(f"tests must be at least 1, not {self.tests!r}")
        if len(self.widths) != len(WIDTHS) or min(self.widths) < 1:
            raise ValueError(f"widths must be {len(WIDTHS)} numbers of at least 1, not {self.widths!r}")
        if not self.critic_widths or min(self.critic_widths) < 1:
            raise ValueError(f"critic_widths must be numbers of at least 1, not {self.critic_widths!r}")
        if not self.critic_lr > 0:
            raise ValueError(f"critic_lr must be greater than 0, not {self.critic_lr!r}")
        if not self.pixel + self.feature + self.adversarial:
            raise ValueError("pixel, feature and adversarial are all 0: there is nothing to learn")


KEPT = PLUMES - TESTED

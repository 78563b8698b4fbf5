"""The settings of smoke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from racecar_lab.config import Schedule
from racecar_lab.datasets.smoke import FRAMES, PLUMES
from racecar_lab.networks.smoke import CRITIC, WIDTHS
from racecar_lab.training.loss_config import LossConfig

TEST_PLUMES = 4
"""Number of plumes of smoke, the last ones, that are used only to test."""
TRAINING_PLUMES = PLUMES - TEST_PLUMES
"""Number of plumes of smoke, the first ones, that may be trained on."""


@dataclass(frozen=True, kw_only=True)
class SmokeConfig(LossConfig):
    """Settings of smoke. The paper gives only one of them, the share of frames.

    The weights of the generator's losses were chosen with Std alone, before any regulariser was judged, so that
    super-resolution learns: on a small net (widths 8, 16, 16, 8, 8; 30 epochs, lr 3e-3) and plumes that seed 1000 holds
    out. adversarial = 0.1 and 1 both had a third less L2 than bicubic interpolation; 1 had the better spectrum but a
    lower SSIM, so it is 0.1. These first trials, of Std and of RR, used other plumes than those of today
    (``plumes.SEED``). A search chooses learning rates and λ. Of 100, 200, 400 and 800 epochs, 800 are the fewest with
    which Std's L2 on held-out plumes is within 2 % of the best (``smoke_epochs`` of benchmarks/published.sh); more were
    not tried.
    """

    share: float = 0.1
    """Share of all frames that is trained on, drawn from the plumes that are not for tests."""
    tests: int = FRAMES
    """Number of evenly spaced frames of each held-out plume to test on; all, if there are fewer."""
    widths: tuple[int, ...] = WIDTHS
    """Numbers of channels after the generator's first five layers."""
    critic_widths: tuple[int, ...] = CRITIC
    """Numbers of channels of the discriminator's hidden layers."""
    start: Literal["torch", "he"] = "he"
    """Initial weights of the generator's convolutions: PyTorch's own, or He's."""
    pixel: float = 100.0
    """Weight of the mean square error of pixels in the generator's loss."""
    feature: float = 1.0
    """Weight of the mean square error of the discriminator's features, averaged over its layers, in the generator's
    loss."""
    adversarial: float = 0.1
    """Weight of the non-saturating adversarial loss in the generator's loss."""
    epochs: int = 800
    lr: float = 1e-3
    critic_lr: float = 2e-4
    """Learning rate of the discriminator."""
    batch: int = 16
    fraction: float = 1 / 4
    """Share of a batch that the reverse pass sees: four pictures."""
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

"""The settings of disentangle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from racecar_lab.networks.infogan import CHANNELS, HIDDEN
from racecar_lab.training.loss_config import LossConfig


@dataclass(frozen=True, kw_only=True)
class DisentangleConfig(LossConfig):
    """Settings of disentangle. Networks, optimiser, batch and epochs are InfoGAN's, as far as it gives them."""

    unnamed: ClassVar[Mapping[str, Any]] = LossConfig.unnamed
    epochs: int = 50
    lr: float = 2e-4
    batch: int = 128
    weight: float = 1.0
    """λ of every variant with one, as InfoGAN's. The default of ``Racecar`` is for all layers of a net."""
    norm: bool = True
    """True for batch norm in the networks, where InfoGAN has it."""
    code: Literal["one-hot", "number"] = "one-hot"
    """How the generator gets the ten-way code c1: as ten inputs, or as one number in [-1, 1]. The paper can be read
    both ways."""
    hidden: int = HIDDEN
    """Width of the widest linear layer of every network."""
    channels: tuple[int, ...] = CHANNELS
    """Channels of the larger and of the smaller feature maps."""
    encoder_cost: float = 3.0
    """Epochs of stage E, Std's encoder, for each epoch of the training before it, so that both take as many seconds."""
    images: int = 0
    """Number of training pictures, the first ones; 0: all."""
    tests: int = 0
    """Number of test pictures, the first ones; 0: all."""
    shipped: bool = False
    """Use the forty digits that come with racecar instead of MNIST: of each digit three to train on, one to test."""
    samples: int = 10_000
    """Number of generated pictures that are measured."""
    inverted: int = 1000
    """Number of test digits, and of generated ones, whose codes are also read by gradient steps on the input."""
    inversion_steps: int = 200
    judge_epochs: int = 6
    """Epochs of the classifier that judges pictures."""
    judge_accuracy: float = 0.99
    """The smallest test accuracy that this classifier must have."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.channels) != 2 or min(self.channels) < 1:
            raise ValueError(f"channels must be two numbers of at least 1, not {self.channels!r}")
        for name in ("hidden", "inverted", "inversion_steps", "judge_epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if self.samples < 2:
            raise ValueError(f"samples must be at least 2, not {self.samples!r}")
        self.refuse_negative("images", "tests")
        if not self.encoder_cost > 0:
            raise ValueError(f"encoder_cost must be greater than 0, not {self.encoder_cost!r}")
        if not 0 <= self.judge_accuracy <= 1:
            raise ValueError(f"judge_accuracy must be in [0, 1], not {self.judge_accuracy!r}")

    @property
    def sizes(self) -> tuple[int, tuple[int, ...]]:
        """The sizes of all networks: width and channels."""
        return self.hidden, self.channels

    @property
    def digits(self) -> tuple[bool, int, int, float]:
        """The arguments of ``splitting.digits_task`` after the data folder."""
        return self.shipped, self.images, self.tests, self.valid

"""The settings of texture-shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from racecar_lab.config import Schedule
from racecar_lab.datasets.texture_shape import FOLDS
from racecar_lab.experiments.shared import refuse_depth
from racecar_lab.training.longer import LongerConfig
from racecar_lab.training.loss_config import LossConfig


@dataclass(frozen=True, kw_only=True)
class TextureShapeConfig(LongerConfig, LossConfig):
    """As it stands, this is the paper-like setting: no augmentation, no norm, PyTorch's first weights. Learning rate
    and coefficient are for a search to choose."""

    split: Literal["shape", "random"] = "shape"
    """What is held out: shape pictures, with all that is made of them; or stylised pictures at random, so that the same
    shape is seen in training."""
    fold: int | None = None
    """Of five; None: all, one after the other."""
    images: int = 0
    """Stylised pictures to train on; 0: as many as every fold has."""
    size: int = 64
    """Height and width of the pictures, which are made smaller where they are larger."""
    depth: int = 3
    """Convolutions: 3, 6, 9 …, in three blocks."""
    widths: tuple[int, ...] = (32, 64, 128)
    """Channels of the three blocks; the picture is halved after each."""
    norm: Literal["none", "batch"] = "none"
    """After every convolution."""
    start: Literal["torch", "he"] = "torch"
    """First weights of the convolutions: PyTorch's own, or He's."""
    augment: Literal["none", "strong"] = "none"
    """Strong: training pictures are flipped, shifted by an eighth and made larger or smaller by up to a quarter."""
    epochs: int = 40
    finetune: int = 20
    """Epochs of the second stage, without regulariser."""
    lr: float = 1e-3
    batch: int = 64
    schedule: Schedule = "cosine"
    fraction: float = 1 / 8
    slim: float = 0.76
    """RR is trained once more with so many of the channels, which leaves about 68 % of the weights; 1: it is not."""
    reduced: bool = False
    """This is that training of RR; other variants have none."""
    cost: float = 1.6
    """Of an eighth of the batch, on an H200 (1.5 without norm, 1.7 with batch norm); measure it where you train. The
    first stage of Std is what is longer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("images")
        self.refuse_no_part("slim")
        refuse_depth(self.depth)
        if self.fold is not None and not 0 <= self.fold < FOLDS:
            raise ValueError(f"fold must be 0 to {FOLDS - 1}, or none for all, not {self.fold!r}")
        if len(self.widths) != 3 or min(self.widths) < 1:
            raise ValueError(f"widths must be three numbers of at least 1, not {self.widths!r}")
        if self.size < 8:
            raise ValueError(f"size must be at least 8, not {self.size!r}: pictures are halved three times")
        if self.finetune < 1:
            raise ValueError(f"finetune must be at least 1, not {self.finetune!r}")

    @property
    def channels(self) -> tuple[int, ...]:
        """Of the three blocks, also of the reduced net."""
        return tuple(max(1, round(self.slim * width)) for width in self.widths) if self.reduced else self.widths

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
    """Settings of texture-shape. The defaults are like the paper's: no augmentation, no norm, PyTorch's initial
    weights. A search chooses learning rate and λ."""

    stackable = (*LossConfig.stackable, "start")
    split: Literal["shape", "random"] = "shape"
    """Way in which test pictures are held out. "shape": by shape picture, with all stylised pictures made of it;
    "random": stylised pictures at random, so that training shows the same shapes."""
    fold: int | None = None
    """Number of the fold, 0 to 4; None: all, one after the other."""
    images: int = 0
    """Number of stylised pictures to train on; 0: the largest number that every fold has."""
    size: int = 64
    """Height and width of the pictures in pixels; larger ones are made smaller."""
    depth: int = 3
    """Number of convolutions in three blocks: 3, 6, 9 …"""
    widths: tuple[int, ...] = (32, 64, 128)
    """Numbers of channels of the three blocks; the picture is halved after each."""
    norm: Literal["none", "batch"] = "none"
    """Norm after every convolution."""
    start: Literal["torch", "he"] = "torch"
    """Initial weights of the convolutions: PyTorch's own, or He's."""
    augment: Literal["none", "strong"] = "none"
    """Augmentation; "strong": training pictures are flipped, shifted by up to an eighth and resized by up to a
    quarter."""
    epochs: int = 40
    finetune: int = 20
    """Number of epochs of the second stage, AA, which has no regulariser."""
    lr: float = 1e-3
    batch: int = 64
    schedule: Schedule = "cosine"
    fraction: float = 1 / 8
    slim: float = 0.76
    """Share of the channels that RR has when it is trained once more as a smaller net: 0.76 leaves about 68 % of the
    weights; 1: no such training."""
    reduced: bool = False
    """True: RR is trained as a smaller net, with the share ``slim`` of the channels."""
    cost: float = 1.6
    """Time of a step of RR divided by that of a step of Std, measured on an H200 while the reverse pass saw an eighth
    of the batch (1.5 without norm, 1.7 with batch norm); measure it where you train. By it, stage A alone is longer in
    Std's longer training."""

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
        """Numbers of channels of the three blocks, fewer if ``reduced``."""
        return tuple(max(1, round(self.slim * width)) for width in self.widths) if self.reduced else self.widths

"""The settings of few-labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from racecar_lab.experiments.shared import refuse_depth
from racecar_lab.training.longer import LongerConfig
from racecar_lab.training.loss_config import LossConfig

SLICE = 1 / 8
"""Default share of each batch that the reverse pass sees."""


@dataclass(frozen=True, kw_only=True)
class FewLabelsConfig(LongerConfig, LossConfig):
    """Settings of few-labels. The defaults are those of a first try, which the claims come from; only the reverse pass
    sees a slice of each batch, not all of it."""

    stackable = (*LossConfig.stackable, "start")
    unnamed: ClassVar[Mapping[str, Any]] = {
        **LossConfig.unnamed,
        "reduction": "mean",
        "weight": 0.1,
        "start": "torch",
        "tune_lrs": (),
    }
    task: Literal["digits", "blur", "cifar"] = "digits"
    norm: Literal["none", "batch", "group"] = "none"
    """The norm after every convolution."""
    start: Literal["torch", "he"] = "torch"
    """Initial weights of the convolutions: PyTorch's own, or He's."""
    images: int = 4000
    """Number of pictures that the source task is trained on; 0: all."""
    augment: bool = False
    """Shift the source's pictures, by 2 pixels (MNIST), or flip them and shift by 4 (CIFAR-10)."""
    depth: int = 3
    """Number of convolutions in three blocks: 3, 6, 9 …"""
    layers: Literal["all", "early", "late"] = "all"
    """Convolutions that have a reverse loss: "all", "early" (the first block) or "late" (the last)."""
    decay: bool = False
    """λ falls to 0 over the training, in a straight line."""
    epochs: int = 4
    lr: float = 1e-3
    batch: int = 64
    fraction: float = SLICE
    weight: float = LossConfig.weight
    labels: tuple[int, ...] = (2, 10, 50, 250)
    """Numbers of labelled pictures per class of the new task."""
    draws: int = 5
    """Number of random sets of labelled pictures over which the probe is averaged."""
    l2: float = 1e-3
    """Weight decay of the probe, whose loss is the mean cross-entropy + l2 / 2 · Σ w². Its features have mean squared
    length 1."""
    tests: int = 0
    """Number of test pictures of each task, the first ones of the file; 0: all."""
    tune_draws: int = 2
    """Number of random sets of labelled pictures over which fine-tuning is averaged; 0: no fine-tuning."""
    tune_steps: int = 100
    """Steps of fine-tuning, by Adam, without regulariser. The classifier starts from zeros."""
    tune_lr: float = 1e-3
    """Learning rate of fine-tuning if ``tune_lrs`` is empty."""
    tune_lrs: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Learning rates from which fine-tuning chooses, for every net and number of labels; see ``fine_tune``."""
    tune_batch: int = 64
    cost: float = 1.33
    """Time of a step of RR divided by that of a step of Std, measured on one core of a CPU for a net without norm; with
    batch or group norm it is 1.26."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse_negative("images", "tests", "tune_draws")
        refuse_depth(self.depth)
        if not self.labels or min(self.labels) < 1 or len(set(self.labels)) < len(self.labels):
            raise ValueError(f"labels must be numbers of at least 1, each once, not {self.labels!r}")
        for name in ("draws", "l2", "tune_steps", "tune_lr", "tune_batch"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)!r}")
        if min(self.tune_lrs, default=1.0) <= 0:
            raise ValueError(f"tune_lrs must be numbers above 0, not {self.tune_lrs!r}")

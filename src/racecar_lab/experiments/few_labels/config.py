"""The settings of few-labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from racecar_lab.experiments.shared import refuse_depth
from racecar_lab.training.longer import LongerConfig
from racecar_lab.training.loss_config import LossConfig

SLICE = 1 / 8
"""Of each batch, that the reverse pass sees."""


@dataclass(frozen=True, kw_only=True)
class FewLabelsConfig(LongerConfig, LossConfig):
    """As it stands, this is the first try that the claims come from, with more seeds and a slice for the exact pass."""

    unnamed: ClassVar[Mapping[str, Any]] = {
        **LossConfig.unnamed,
        "reduction": "mean",
        "strength": 0.1,
        "start": "torch",
        "tune_lrs": (),
    }
    task: Literal["digits", "blur", "cifar"] = "digits"
    norm: Literal["none", "batch", "group"] = "none"
    """After every convolution: "none", "batch" or "group"."""
    start: Literal["torch", "he"] = "torch"
    """First weights of the convolutions: PyTorch's own, or He's."""
    images: int = 4000
    """That the source is trained on; 0: all there are."""
    augment: bool = False
    """Shift the source's pictures, by 2 pixels (MNIST), or flip them and shift by 4 (CIFAR-10)."""
    depth: int = 3
    """Convolutions: 3, 6, 9 …, in three blocks."""
    layers: Literal["all", "early", "late"] = "all"
    """Which convolutions are constrained: "all", "early" (the first block) or "late" (the last)."""
    decay: bool = False
    """The coefficient falls to 0 over the training, in a straight line."""
    epochs: int = 4
    lr: float = 1e-3
    batch: int = 64
    fraction: float = SLICE
    strength: float = LossConfig.strength
    labels: tuple[int, ...] = (2, 10, 50, 250)
    """Per class of the new task."""
    draws: int = 5
    """Sets of labelled pictures over which the probe is averaged."""
    l2: float = 1e-3
    """Of the probe: times half of Σ w², beside the mean cross-entropy, on features of mean squared length 1."""
    tests: int = 0
    """Pictures of each task's test set that are looked at, the first ones; 0: all."""
    tune_draws: int = 2
    """Sets over which fine-tuning is averaged; 0: no fine-tuning."""
    tune_steps: int = 100
    """Of Adam, from a classifier of zeros, without regulariser."""
    tune_lr: float = 1e-3
    """Where ``tune_lrs`` has none."""
    tune_lrs: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Learning rates of fine-tuning that are tried, for every net and number of labels; see ``fine_tuned``."""
    tune_batch: int = 64
    cost: float = 1.33
    """On one core of a CPU without norm; with batch or group norm 1.26."""

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

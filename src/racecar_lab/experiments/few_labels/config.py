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
    """Settings of few-labels. The defaults are those of a first try, from which the claims come, but for one: the
    reverse pass sees a slice of each batch, not all of it."""

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
    """Norm after every convolution."""
    start: Literal["torch", "he"] = "torch"
    """Initial weights of the convolutions: PyTorch's own, or He's."""
    images: int = 4000
    """Number of training pictures of the source task; 0: all."""
    augment: bool = False
    """True: training pictures of the source task are shifted at random, by up to 2 pixels (MNIST), or flipped and
    shifted by up to 4 (CIFAR-10)."""
    depth: int = 3
    """Number of convolutions in three blocks: 3, 6, 9 …"""
    layers: Literal["all", "early", "late"] = "all"
    """Convolutions that have a reverse loss: in all three blocks ("all"), in the first ("early") or in the last
    ("late")."""
    decay: bool = False
    """True: λ falls to 0 over the training, in a straight line."""
    epochs: int = 4
    lr: float = 1e-3
    batch: int = 64
    fraction: float = SLICE
    weight: float = LossConfig.weight
    labels: tuple[int, ...] = (2, 10, 50, 250)
    """Numbers of labelled pictures per class; the new task is learned with each of them by itself."""
    draws: int = 5
    """Number of random sets of labelled pictures over which the accuracy of the linear probe is averaged."""
    l2: float = 1e-3
    """Weight decay of the linear probe, whose loss is the mean cross-entropy + l2 / 2 · Σ w². Its features have mean
    squared length 1."""
    tests: int = 0
    """Number of test pictures of each task, the first ones of the file; 0: all."""
    tune_draws: int = 2
    """Number of random sets of labelled pictures over which the accuracy of fine-tuning is averaged; 0: no
    fine-tuning."""
    tune_steps: int = 100
    """Number of steps of fine-tuning, by Adam, without regulariser. The new classifier starts from zeros."""
    tune_lr: float = 1e-3
    """Learning rate of fine-tuning if ``tune_lrs`` is empty."""
    tune_lrs: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Learning rates of which fine-tuning chooses one for every net and number of labels, by accuracy on held-out
    pictures; empty: it has ``tune_lr``."""
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

"""The data of a task: training, test and held-out samples with their labels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Split:
    """Samples x (N, …) with labels y: classes (N,), or other targets of the recipe's loss (N, …)."""

    x: Tensor
    y: Tensor

    @property
    def classes(self) -> bool:
        """True if the labels are classes, one for each sample, so that accuracy is defined."""
        return self.y.dim() == 1 and not self.y.is_floating_point()

    def __len__(self) -> int:
        return len(self.x)

    def to(self, device: torch.device | str) -> Split:
        return Split(self.x.to(device), self.y.to(device))


@dataclass(frozen=True, eq=False)
class Task:
    """The data of a stage: training, test and, if samples are held out, validation samples."""

    train: Split
    test: Split
    valid: Split | None = None

    @property
    def evaluated(self) -> tuple[str, Split]:
        """The samples that a net is measured on, after their name: ("valid", held-out samples) in a search, which must
        not see the test samples, otherwise ("test", test samples)."""
        return ("test", self.test) if self.valid is None else ("valid", self.valid)

    def to(self, device: torch.device | str) -> Task:
        valid = None if self.valid is None else self.valid.to(device)
        return Task(self.train.to(device), self.test.to(device), valid)

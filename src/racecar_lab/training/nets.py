"""What the training loop trains: the networks of one training, or of many at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from racecar_lab.training.batches import Batches, Draws, StackedBatches
from racecar_lab.training.spec import Training, TrainingOptions


class Nets(ABC):
    """Nets that can be trained, evaluated and saved; the loop (``train.Trainer``) decides when. A net here is what one
    training trains: a network, or several that take turns."""

    batches: Batches | StackedBatches
    save_at_end = False
    """True if a checkpoint is written after the last step, too, for a kill while many nets are measured."""

    def __init__(self, trainings: Sequence[Training], options: TrainingOptions) -> None:
        self.trainings, self.options, self.device = trainings, options, torch.device(options.device)
        self.turns = trainings[0].recipe.all_turns()

    @abstractmethod
    def train_step(self, turn: int, step: int, draws: Draws) -> Tensor:
        """Do the step of a turn on a batch.

        Args:
            turn: index in ``turns``.
            step: number of the batch from the start of the training.

        Returns:
            The task's loss and the regulariser, (2,) or (nets, 2).
        """

    @abstractmethod
    def train(self) -> None:
        """Switch to training mode."""

    @abstractmethod
    def model_of(self, i: int) -> nn.Module:
        """The model of net i for evaluation. It may be overwritten by the next call."""

    @abstractmethod
    def finite(self) -> list[bool]:
        """For each net, True if all its weights are finite."""

    def terms(self) -> Mapping[str, Tensor]:
        """The parts of the last step's regulariser, by layer."""
        return {}

    @abstractmethod
    def end(self) -> int | None:
        """Release what only steps need. Returns the peak memory on the device in bytes, if known."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Continue from the state of a checkpoint."""

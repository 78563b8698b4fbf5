"""The networks that the training loop trains: those of one training, or of many at once."""

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
    """True if a checkpoint is written after the last step, too, so that many trained nets are not lost when the process
    is killed while they are measured."""

    def __init__(self, trainings: Sequence[Training], options: TrainingOptions) -> None:
        self.trainings, self.options, self.device = trainings, options, torch.device(options.device)
        self.turns = trainings[0].recipe.all_turns()

    @abstractmethod
    def train_step(self, turn: int, step: int, draws: Draws) -> Tensor:
        """Train the network of a turn on a batch, by one step of its optimiser.

        Args:
            turn: index in ``turns``.
            step: number of the batch from the start of the training.

        Returns:
            The task's loss and the regulariser, (2,) or (nets, 2).
        """

    @abstractmethod
    def train(self) -> None:
        """Switch the trained networks to training mode."""

    @abstractmethod
    def model_of(self, i: int) -> nn.Module:
        """The model of net i for evaluation. It may be overwritten by the next call."""

    @abstractmethod
    def finite(self) -> list[bool]:
        """For each net, True if all its weights are finite."""

    def terms(self) -> Mapping[str, Tensor]:
        """The regulariser of the last step, before λ, in parts: name of a layer → its part. Empty if it has no
        parts."""
        return {}

    @abstractmethod
    def end(self) -> int | None:
        """End the training: release the memory that only training steps need. Returns the peak memory on the device in
        bytes; None if it is not known."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """The weights, optimisers and random states of the nets, for a checkpoint."""

    @abstractmethod
    def load(self, state: dict[str, Any]) -> None:
        """Continue with the weights, optimisers and random states of a checkpoint, as ``state`` returned them."""

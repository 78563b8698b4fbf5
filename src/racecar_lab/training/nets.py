"""The interface between the training loop and the trained networks: those of one training, or of many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from racecar_lab.task import Task
from racecar_lab.training.batches import Drawn
from racecar_lab.training.spec import Training


class Nets(Protocol):
    """Networks that can be trained, evaluated and saved; the loop (``train.Trainer``) decides when. A net here is what
    one training trains: a network, or several that take turns."""

    trainings: Sequence[Training]
    tasks: Sequence[Task]
    """The task of each training, on the device."""
    turns: Sequence[str]
    """Names of the networks that the turns on a batch train."""
    per_epoch: int
    """Number of batches in an epoch."""
    save_at_end: bool = False
    """True if a checkpoint is written after the last step, too, for a kill while many nets are measured."""

    def start(self) -> None:
        """Prepare for the first step, after the weights are loaded."""
        self.train()

    def draw(self, epoch: int) -> Sequence[Drawn]:
        """The random tensors of an epoch's steps, (steps, …) each, for every turn."""

    def train_step(self, turn: int, batch_index: int, drawn: Drawn) -> Tensor:
        """Do the step of a turn on a batch, counted from the start of the training. Returns the task's loss and the
        regulariser, (2,) or (nets, 2)."""

    def train(self) -> None:
        """Switch to training mode."""

    def model_of(self, i: int) -> nn.Module:
        """The model of net i for evaluation. It may be overwritten by the next call."""

    def finite(self) -> list[bool]:
        """For each net, True if all its weights are finite."""

    def terms(self) -> Mapping[str, Tensor]:
        """The parts of the last step's regulariser, by layer."""
        return {}

    def end(self) -> int | None:
        """Release what only steps need. Returns the peak memory on the device in bytes, if known."""

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""

    def load(self, state: dict[str, Any]) -> None:
        """Continue from the state of a checkpoint."""

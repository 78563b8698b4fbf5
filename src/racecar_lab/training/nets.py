"""What the training loop drives: the networks of one training, or of many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from racecar_lab.experiment import Task
from racecar_lab.training.batches import Drawn
from racecar_lab.training.spec import Training


class Nets(Protocol):
    """Knows its steps and its state; when they are taken, looked at and saved is the loop's."""

    trainings: Sequence[Training]
    tasks: Sequence[Task]
    """On the device."""
    turns: Sequence[str]
    """The network that each turn on a batch trains, by name."""
    per_epoch: int
    """Batches in an epoch."""
    safe: bool = False
    """Whether what is trained is saved at the end, too, to be measured and written in peace."""

    def start(self) -> None:
        """Before the first step, once the weights are there."""
        self.train()

    def draw(self, epoch: int) -> Sequence[Drawn]:
        """For every turn, all that is random in an epoch's steps, (steps, …)."""

    def take(self, turn: int, cycle: int, drawn: Drawn) -> Tensor:
        """The step of a turn on batch number ``cycle``; returns losses and regularisers, (2,) or (nets, 2)."""

    def train(self) -> None:
        """Into training mode."""

    def measured(self, i: int) -> nn.Module:
        """What is measured of net i, until the next one is asked for."""

    def finite(self) -> list[bool]:
        """Of each net, whether all its weights are."""

    def terms(self) -> Mapping[str, Tensor]:
        """The parts of the last step's regulariser, by layer."""
        return {}

    def end(self) -> int | None:
        """After the last step: nothing is held that steps alone need. The most bytes on the device, where known."""

    def state(self) -> dict[str, Any]:
        """All that goes into a checkpoint."""

    def load(self, state: dict[str, Any]) -> None:
        """Go on from there."""

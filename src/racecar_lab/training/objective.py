"""What a turn minimises, as a module: from a batch to the loss of the task and the regulariser."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from racecar_lab.training.recipe import Batch, Turn
from racecar_lab.training.variants import Regularised


class Objective(nn.Module):
    """Every kind of step calls it, or compiles, records or batches it. The network that is trained is in here; the
    others are not its parts, so that their weights are nothing to optimise or to share.

    Args:
        own: the network that is trained, with its regulariser.
        networks: all of them, by name.
    """

    def __init__(self, turn: Turn, own: Regularised, networks: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.turn, self.own, self._networks = turn, own, dict(networks)

    @property
    def where(self) -> str:
        """How the names of the network's parameters begin in this module."""
        return f"own.{self.own.where}"

    def forward(
        self, x: Tensor, y: Tensor, noise: Tensor | None = None, latent: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss of the task and the regulariser before its coefficient: the mean over the network's calls."""
        found: list[Tensor] = []

        def call(*inputs: Tensor) -> Tensor:
            output, regulariser = self.own(*inputs, noise=noise)
            found.append(regulariser)
            return output

        task = self.turn.apply(call, Batch(x, y, latent), self._networks, found)
        return task, found[0] if len(found) == 1 else torch.stack(found).mean()

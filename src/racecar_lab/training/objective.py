"""The objective of a turn, as a module: from a batch to the task's loss and the regulariser."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from racecar_lab.training.recipe import Batch, Turn
from racecar_lab.training.variants import Regularised


class Objective(nn.Module):
    """The function that every kind of step calls, compiles, records or batches. Only the trained network is a
    submodule; the weights of the others are neither optimised nor shared between processes.

    Args:
        regularised: the trained network, with its regulariser.
        networks: all networks of the training, by name.
    """

    def __init__(self, turn: Turn, regularised: Regularised, networks: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.turn, self.regularised, self._networks = turn, regularised, dict(networks)

    @property
    def prefix(self) -> str:
        """Prefix of the trained network's parameter names in this module."""
        return f"regularised.{self.regularised.prefix}"

    def forward(
        self, x: Tensor, y: Tensor, noise: Tensor | None = None, latent: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The task's loss and the regulariser before λ, two scalars. The regulariser is the mean over the network's
        calls.

        Args:
            x, y: samples and labels, (N, …).
            noise: random numbers of the regulariser, (``regularised.noise``,).
            latent: random numbers of the loss, (N, …).
        """
        regularisers: list[Tensor] = []

        def call(*inputs: Tensor) -> Tensor:
            output, regulariser = self.regularised(*inputs, noise=noise)
            regularisers.append(regulariser)
            return output

        task = self.turn.apply(call, Batch(x, y, latent), self._networks, regularisers)
        return task, regularisers[0] if len(regularisers) == 1 else torch.stack(regularisers).mean()

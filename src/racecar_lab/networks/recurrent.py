"""A recurrent network with one or several outputs at the end of a sequence."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
"""Recurrent layers by their short names."""


class Recurrent(nn.Module):
    """A linear layer with tanh at every time step, recurrent layers, and a linear layer at the last time steps.

    Args:
        features: number of features of the input x (N, T, features).
        outputs: number of outputs at a time step.
        cell: "lstm", "gru" or "rnn".
        hidden: size of the first linear layer and of all states.
        layers: number of stacked recurrent layers.
        answers: number of time steps at the end that have an output, (N, answers, outputs); 1: (N, outputs).
        dropout: probability of the dropout on the last layer's states.
    """

    def __init__(
        self,
        features: int,
        outputs: int,
        *,
        cell: str = "lstm",
        hidden: int = 64,
        layers: int = 1,
        answers: int = 1,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.enter = nn.Linear(features, hidden)
        self.cell = CELLS[cell](hidden, hidden, layers, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, outputs)
        self.answers = answers

    def forward(self, x: Tensor) -> Tensor:
        """The outputs at the last time steps: x (N, T, features) → (N, answers, outputs), or (N, outputs) for one
        answer."""
        states, _ = self.cell(torch.tanh(self.enter(x)))
        last = states[:, -1] if self.answers == 1 else states[:, -self.answers :]
        return self.head(self.drop(last))

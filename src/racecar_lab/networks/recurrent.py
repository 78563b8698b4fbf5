"""A recurrent network that reads a sequence and answers at its end."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
"""By their short names."""


class Recurrent(nn.Module):
    """Every time step through a linear layer and tanh, then recurrent layers, then a linear layer at the last steps.

    Args:
        features: of the input x (N, T, features).
        outputs: of an answer.
        cell: "lstm", "gru" or "rnn".
        hidden: size of the first linear layer and of all states.
        layers: recurrent layers, stacked.
        answers: steps at the end that have an answer: (N, answers, outputs); 1: (N, outputs).
        dropout: probability, of the last layer's states.
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
        states, _ = self.cell(torch.tanh(self.enter(x)))
        last = states[:, -1] if self.answers == 1 else states[:, -self.answers :]
        return self.head(self.drop(last))

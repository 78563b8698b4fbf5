"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import nn


def glorot(model: nn.Module) -> nn.Module:
    """Initialise linear layers with Glorot-uniform weights and zero biases, as in the code of the paper's authors."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    return model


def dense(
    widths: Sequence[int],
    activation: Callable[[], nn.Module] | None = None,
    *,
    norm: bool = False,
    last: bool = False,
    dropout: float = 0.0,
) -> nn.Sequential:
    """A fully connected network.

    Args:
        widths: width of the input and of every layer.
        activation: activation after every layer but the last; None: none.
        norm: whether there is batch norm between a layer and its activation.
        last: whether norm and activation follow the last layer as well.
        dropout: probability of the dropout after every activation.
    """
    parts: list[nn.Module] = [nn.Flatten()]
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        parts.append(nn.Linear(inputs, outputs))
        if i < len(widths) - 2 or last:
            parts += [nn.BatchNorm1d(outputs)] if norm else []
            parts += [activation()] if activation is not None else []
            parts += [nn.Dropout(dropout)] if dropout and i < len(widths) - 2 else []
    return nn.Sequential(*parts)

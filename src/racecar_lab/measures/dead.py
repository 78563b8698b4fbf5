"""The collapse check: nets whose output is the same for every input, and layers whose input is always 0."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from racecar.inspect import activations

MIN_VARIANCE = 0.01
"""An autoencoder counts as dead if the variance of its output, divided by that of its input, is below this."""

SAMPLES = 256
"""Number of training samples by which a net is checked for collapse."""


class CollapseCheck(NamedTuple):
    """A network and samples on which it is checked for collapse: for an output that is the same for all of them."""

    model: nn.Module
    inputs: Tensor
    """Samples (N, …) for which the network's outputs are compared."""
    autoencoder: bool = False
    """True if the network is an autoencoder: one whose output hardly varies counts as dead, too."""


@torch.no_grad()
def is_dead(model: nn.Module, x: Tensor, autoencoder: bool = False) -> bool:
    """True if a model's output does not depend on its input x (N, …). The loss of such a net may be finite.

    Args:
        autoencoder: the model is an autoencoder. One whose output hardly varies counts as dead, too.
    """
    output = model(x)
    if not isinstance(output, Tensor) or len(output) < 2:
        return False
    if autoencoder:
        return bool(output.var(0).mean() < MIN_VARIANCE * x.var(0).mean())
    return bool((output - output[:1]).abs().max() <= 1e-6 * output.abs().max())


def dead_layers(model: nn.Module, x: Tensor) -> list[str]:
    """Names of the layers whose input d_m is 0 for all samples x (N, …), so that the reverse pass compares 0 with 0."""
    inputs = activations(model, x)
    alive = torch.stack([d.tensor.any() for d in inputs]).tolist()
    return [d.layer for d, is_alive in zip(inputs, alive, strict=True) if not is_alive]

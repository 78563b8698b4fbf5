"""Whether a net is dead: its output the same for every input, or a layer that sees nothing but zeros."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from racecar.inspect import activations

LEAST = 0.01
"""Share of its inputs' variance that the output of an autoencoder has at least, unless it is dead."""


@torch.no_grad()
def is_dead(model: nn.Module, x: Tensor, rebuilds: bool = False) -> bool:
    """Whether a model's output does not depend on its input x (N, …): a loss may be finite, and nothing be learned.

    Args:
        rebuilds: the output should be x again. Then it is known how much it should differ from input to input, and one
            that hardly does is dead, too.
    """
    output = model(x)
    if not isinstance(output, Tensor) or len(output) < 2:
        return False
    if rebuilds:
        return bool(output.var(0).mean() < LEAST * x.var(0).mean())
    return bool((output - output[:1]).abs().max() <= 1e-6 * output.abs().max())


def dead_layers(model: nn.Module, x: Tensor) -> list[str]:
    """Layers whose d_m is 0 for all samples x (N, …): the reverse pass compares nothing with nothing there."""
    seen = activations(model, x)
    alive = torch.stack([one.tensor.any() for one in seen]).tolist()
    return [one.layer for one, lives in zip(seen, alive, strict=True) if not lives]

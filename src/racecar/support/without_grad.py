"""Tensors and modules whose parameters take part as constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from racecar.support.compiling import compiling


def constant(tensor: Tensor) -> Tensor:
    """The same without gradient; of one that was made in inference mode a copy, which the gradients of others need."""
    if not compiling() and tensor.is_inference() and not torch.is_inference_mode_enabled():
        return tensor.clone()
    return tensor.detach()


class WithConstants(nn.Module):
    """Calls functions while the parameters of a module are constants."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``, with those constants."""
        values = {name: constant(one) for name, one in self.named_parameters()}
        return torch.func.functional_call(self, values, (function, *args))

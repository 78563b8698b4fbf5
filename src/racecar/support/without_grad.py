"""Use tensors, and the parameters of modules, as constants without gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from racecar.support.compiling import compiling


def constant(tensor: Tensor) -> Tensor:
    """A tensor detached from the graph; a copy of one of inference mode, which cannot be saved for backward."""
    if not compiling() and tensor.is_inference() and not torch.is_inference_mode_enabled():
        return tensor.clone()
    return tensor.detach()


class WithConstants(nn.Module):
    """Calls functions in which the parameters of a module are constants."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``; ``call`` runs this with the constants in place of the parameters."""
        return function(*args)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``, while the parameters of the module are constants."""
        values = {name: constant(one) for name, one in self.named_parameters()}
        return torch.func.functional_call(self, values, (function, *args))

"""A step whose losses are compiled: takes minutes at first, and pays for large nets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from racecar_lab.training import distributed
from racecar_lab.training.steps.eager import Eager


class Compiled(Eager):
    """By torch.compile, which also makes CUDA graphs where they are asked for."""

    def start(self) -> None:
        self._graphs = self.options.graphs and self.device.type == "cuda"
        mode = "reduce-overhead" if self._graphs else None
        self.call = torch.compile(distributed.wrap(self.objective), mode=mode)  # type: ignore[assignment]

    def gradients(self, *given: Any) -> Tensor:
        if self._graphs:  # the tensors of the step before may be overwritten
            torch.compiler.cudagraph_mark_step_begin()
        return super().gradients(*given)

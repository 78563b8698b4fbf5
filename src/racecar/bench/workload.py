"""A model on its device, with inputs and a task: what a step works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree

from racecar.racecar import call_arguments

Example = Tensor | tuple[Any, ...] | dict[str, Any]
Open = Callable[[str], tuple[nn.Module, Example]]
"""From a name to a model and its inputs, with random weights and numbers; a function that can be pickled."""


@dataclass(frozen=True)
class Circumstances:
    """How all steps of a run are made."""

    device: str = "cpu"
    half: bool = False
    """Forward pass in bfloat16, by autocast."""
    compile: bool = False
    combine: bool = False
    """Let inductor put short kernels that do not need each other into one."""
    graphs: bool = False
    """Replay whole steps as CUDA graphs."""
    profile: bool = False
    """Take every kind of step apart into its kernels."""

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")


@dataclass(frozen=True)
class About:
    """What a record says of a workload."""

    name: str
    parameters: int
    inputs: list[list[int]]
    batch: int
    how: Circumstances


class Workload:
    """A model in training mode, its inputs, and the loss of a task made up for it.

    Where the output is (N, classes) the task is cross-entropy with random labels, otherwise the mean square of all
    outputs: what the task is hardly counts, but its gradient has to pass the whole model.
    """

    def __init__(self, name: str, model: nn.Module, example: Example, how: Circumstances) -> None:
        self.name, self.how = name, how
        pictures = how.cuda and all(p.dim() < 5 for p in model.parameters())
        layout = torch.channels_last if pictures else torch.contiguous_format
        self.model: nn.Module = model.to(how.device).to(memory_format=layout).train()  # type: ignore[call-overload]

        def place(x: Tensor) -> Tensor:
            return x.to(how.device).contiguous(memory_format=layout if x.dim() == 4 else torch.contiguous_format)

        self.example: Example = _pytree.tree_map_only(Tensor, place, example)
        self.args, self.kwargs = call_arguments(self.example)
        self.parameters = list(self.model.parameters())
        self.tensors = [one for one in _pytree.tree_leaves((self.args, self.kwargs)) if isinstance(one, Tensor)]
        self.batch = len(self.tensors[0])
        self.target = self._labels()

    def _labels(self) -> Tensor | None:
        args, kwargs = self.few(1)
        with torch.no_grad():
            output = self.model.eval()(*args, **kwargs)
        self.model.train()
        if not isinstance(output, Tensor) or output.dim() != 2:
            return None
        generator = torch.Generator().manual_seed(0)
        return torch.randint(output.shape[1], (self.batch,), generator=generator).to(self.how.device)

    @property
    def about(self) -> About:
        count, shapes = sum(p.numel() for p in self.parameters), [list(x.shape) for x in self.tensors]
        return About(self.name, count, shapes, self.batch, self.how)

    def few(self, count: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a call with the first samples alone."""
        return _pytree.tree_map_only(Tensor, lambda x: x[:count] if x.dim() else x, (self.args, self.kwargs))

    def autocast(self) -> torch.autocast:
        return torch.autocast("cuda" if self.how.cuda else "cpu", torch.bfloat16, enabled=self.how.half)

    def task(self, output: Any) -> Tensor:
        """The loss of the task."""
        if self.target is not None:
            return F.cross_entropy(output.float(), self.target[: len(output)])
        tensors = [one for one in _pytree.tree_leaves(output) if isinstance(one, Tensor) and one.is_floating_point()]
        return torch.stack([one.float().square().mean() for one in tensors]).sum()

    def clear(self) -> None:
        """No gradients, as before a step."""
        for parameter in self.parameters:
            parameter.grad = None

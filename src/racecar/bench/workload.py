"""A model on its device with inputs and a task: what every training step of a comparison works on."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.racecar import call_arguments
from racecar.support.torch_private import map_tensors, tensors_in

Example = Tensor | tuple[Any, ...] | dict[str, Any]
"""Inputs of a model: a tensor, positional arguments or keyword arguments."""
OpenModel = Callable[[str], tuple[nn.Module, Example]]
"""Builds a model and its inputs from a name."""


@dataclass(frozen=True)
class StepOptions:
    """Options for running the training steps: device, precision, compiling. All kinds of steps share them."""

    device: str = "cpu"
    half: bool = False
    """Forward pass in bfloat16, by autocast."""
    compile: bool = False
    """torch.compile the loss of every step."""
    combine: bool = False
    """Let inductor fuse short independent kernels into one (its combo_kernels)."""
    graphs: bool = False
    """Replay whole steps as CUDA graphs."""
    profile: bool = False
    """Also list the kernels of every step."""

    @property
    def cuda(self) -> bool:
        return self.device.startswith("cuda")


@dataclass(frozen=True)
class Description:
    """Entry of a record that describes a model and its inputs."""

    name: str
    parameters: int
    inputs: list[list[int]]
    batch: int


class Workload:
    """A model in training mode, its inputs, and a made-up task.

    The task is cross-entropy with random labels where the output is (N, classes), otherwise the mean square of all
    outputs. Which one hardly changes the time of a step, but its gradient has to pass through the whole model.
    """

    def __init__(self, name: str, model: nn.Module, example: Example, options: StepOptions) -> None:
        self.name, self.options = name, options
        images = options.cuda and all(p.dim() < 5 for p in model.parameters())
        layout = torch.channels_last if images else torch.contiguous_format
        self.model: nn.Module = model.to(options.device).to(memory_format=layout).train()  # type: ignore[call-overload]

        def place(x: Tensor) -> Tensor:
            return x.to(options.device).contiguous(memory_format=layout if x.dim() == 4 else torch.contiguous_format)

        self.args, self.kwargs = call_arguments(map_tensors(place, example))
        self.parameters = list(self.model.parameters())
        self.tensors = tensors_in((self.args, self.kwargs))
        self.batch = len(self.tensors[0])
        self.labels = self._labels()

    def _labels(self) -> Tensor | None:
        """Random labels (batch,), None where the output is not (N, classes)."""
        one = self.first_samples(1)
        with torch.no_grad():
            output = self.model.eval()(*one.args, **one.kwargs)
        self.model.train()
        if not isinstance(output, Tensor) or output.dim() != 2:
            return None
        generator = torch.Generator().manual_seed(0)
        return torch.randint(output.shape[1], (self.batch,), generator=generator).to(self.options.device)

    @property
    def description(self) -> Description:
        count, shapes = sum(p.numel() for p in self.parameters), [list(x.shape) for x in self.tensors]
        return Description(self.name, count, shapes, self.batch)

    def first_samples(self, count: int) -> Workload:
        """A copy with the same model and the first ``count`` samples of its inputs."""
        few = copy(self)
        few.args, few.kwargs = map_tensors(lambda x: x[:count] if x.dim() else x, (self.args, self.kwargs))
        return few

    def autocast(self) -> torch.autocast:
        return torch.autocast("cuda" if self.options.cuda else "cpu", torch.bfloat16, enabled=self.options.half)

    def task_loss(self, output: Any) -> Tensor:
        if self.labels is not None:
            return F.cross_entropy(output.float(), self.labels[: len(output)])
        tensors = [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]
        return torch.stack([tensor.float().square().mean() for tensor in tensors]).sum()

    def clear_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

"""A training step, recorded once: afterwards its operations are repeated, without Python per layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from racecar.lab.experiment import Loss
from racecar.lab.training.fx_pass import shorten
from racecar.lab.training.variants import Regularised


def record(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """The operations of a function on tensors, its gradients included, to be called as the function is. Numbers and
    what the function holds besides stay as they are now. No random number is used up, but tensors are changed in
    place, where the function does so."""
    devices = {tensor.device for tensor in torch.utils._pytree.tree_leaves(args) if isinstance(tensor, Tensor)}
    with torch.random.fork_rng([device for device in devices if device.type == "cuda"]):
        recorded = make_fx(lambda *args: function(*args))(*args)  # it would count a method's self
    shorten(recorded)
    return recorded.forward


class Step:
    """Losses and gradients of one net that does the same in every step, whatever the data."""

    def __init__(self, module: Regularised, loss: Loss, coefficient: float) -> None:
        self.module, self.loss, self.coefficient = module, loss, coefficient
        self.parameters, self.buffers = dict(module.named_parameters()), dict(module.named_buffers())
        self._given = [*self.parameters.values(), *self.buffers.values()]
        self._recorded: Callable[..., Any] | None = None

    def __call__(self, x: Tensor, y: Tensor, noise: Tensor | None) -> Tensor:
        """Leaves the gradients with the parameters; returns the loss of the task and the regulariser, (2,)."""
        if self._recorded is None:
            parameters = [one.detach().clone().requires_grad_() for one in self.parameters.values()]
            buffers = [one.clone() for one in self.buffers.values()]  # recording changes them, too
            self._recorded = record(self._step, *parameters, *buffers, x, y, noise)
        with torch.no_grad():
            losses, *gradients = self._recorded(*self._given, x, y, noise)
        for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
            parameter.grad = gradient
        return losses

    def _step(self, *tensors: Any) -> Any:
        """Parameters, buffers, samples, labels and noise one after the other: dicts would be taken apart every time."""
        *given, x, y, noise = tensors
        names = (*self.parameters, *self.buffers)
        output, regulariser = functional_call(self.module, dict(zip(names, given, strict=True)), (x, noise))
        task = self.loss(output, y)
        total = task if self.coefficient == 0 else task + self.coefficient * regulariser
        gradients = torch.autograd.grad(total, given[: len(self.parameters)], allow_unused=True)
        return torch.stack((task.detach().float(), regulariser.detach().float())), *gradients

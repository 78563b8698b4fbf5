"""A training step, recorded once: afterwards its operations are repeated, without Python per layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensorMode
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from racecar.support.interrupts import deferred
from racecar_lab.training.fx_pass import shorten
from racecar_lab.training.optimiser import Fused
from racecar_lab.training.steps.eager import Eager


def record(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """The operations of a function on tensors, its gradients included, to be called as the function is. Numbers and
    what the function holds besides stay as they are now. No random number is used up, but tensors are changed in
    place, where the function does so."""
    devices = {tensor.device for tensor in torch.utils._pytree.tree_leaves(args) if isinstance(tensor, Tensor)}
    shapes = TracingContext(FakeTensorMode(allow_fallback_kernels=True))  # or every operation would make one, slowly
    kept = torch.random.fork_rng([device for device in devices if device.type == "cuda"])
    with deferred(), kept, tracing(shapes):
        recorded = make_fx(lambda *args: function(*args))(*args)  # it would count a method's self
    shorten(recorded)
    return recorded.forward


class Recorded(Eager):
    """Of one net that does the same in every step, whatever the data. Adam works without its bookkeeping."""

    fused = True

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._names = [*dict(self.objective.named_parameters()), *dict(self.objective.named_buffers())]
        self._given = [*self.objective.parameters(), *self.objective.buffers()]
        self._recorded: Callable[..., Any] | None = None
        if self.config.optimiser != "sgd":
            self._fused = Fused(self.optimiser)

    def gradients(
        self, x: Tensor, y: Tensor, noise: Tensor | None, latent: Tensor | None, coefficient: float | Tensor
    ) -> Tensor:
        if self._recorded is None:
            parameters = [one.detach().clone().requires_grad_() for one in self.parameters]
            buffers = [one.clone() for one in self.objective.buffers()]  # recording changes them, too
            self._recorded = record(self._step, *parameters, *buffers, x, y, noise, latent)
        with torch.no_grad():
            losses, *gradients = self._recorded(*self._given, x, y, noise, latent)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        return losses

    def _step(self, *tensors: Any) -> Any:
        """Parameters, buffers and the batch one after the other: dicts would be taken apart every time."""
        given, batch = tensors[: len(self._names)], tensors[len(self._names) :]
        task, regulariser = functional_call(self.objective, dict(zip(self._names, given, strict=True)), batch)
        total = task if self.coefficient == 0 else task + self.coefficient * regulariser
        gradients = torch.autograd.grad(total, given[: len(self.parameters)], allow_unused=True)
        return torch.stack((task.detach().float(), regulariser.detach().float())), *gradients

    def update(self) -> None:
        if self.config.optimiser == "sgd":
            super().update()
            return
        if self.config.clip:
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip)
        self._fused.step()

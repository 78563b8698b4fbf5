"""A training step that is recorded once; then its operations are repeated without the Python of layers and autograd."""

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
    """Record the operations of a function on tensors, including its gradients.

    Recording calls the function once: no random number is used up, but tensors that the function changes in place are
    changed.

    Args:
        function: Python numbers and tensors that it holds become constants of the recording.
        args: tensors, or nested containers of them, as in later calls.

    Returns:
        A function of the same arguments, through which no gradient flows.
    """
    devices = {tensor.device for tensor in torch.utils._pytree.tree_leaves(args) if isinstance(tensor, Tensor)}
    fake_mode = FakeTensorMode(allow_fallback_kernels=True)  # shared, because one for every operation would be slow
    random_state = torch.random.fork_rng([device for device in devices if device.type == "cuda"])
    with deferred(), random_state, tracing(TracingContext(fake_mode)):
        recorded = make_fx(lambda *args: function(*args))(*args)  # a lambda, or a method's self would be an argument
    shorten(recorded)
    return recorded.forward


class Recorded(Eager):
    """A step of a net that does the same operations in every step, whatever the data; with ``Fused`` Adam."""

    fused = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        named = [*self.objective.named_parameters(), *self.objective.named_buffers()]
        self._names, self._tensors = [name for name, _ in named], [tensor for _, tensor in named]
        self._recorded: Callable[..., Any] | None = None
        self._fused = None if self.config.optimiser == "sgd" else Fused(self.optimiser)

    def backward(self, batch: tuple[Any, ...], weight: Any) -> Tensor:
        if self._recorded is None:
            parameters = [parameter.detach().clone().requires_grad_() for parameter in self.parameters]
            buffers = [buffer.clone() for buffer in self.objective.buffers()]  # clones, because recording changes them
            self._recorded = record(self._losses_and_gradients, *parameters, *buffers, *batch)
        with torch.no_grad():
            losses, *gradients = self._recorded(*self._tensors, *batch)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        return losses

    def _losses_and_gradients(self, *args: Any) -> Any:
        """The task's loss and the regulariser, (2,), and the gradient of every parameter.

        Args:
            args: parameters, buffers and the batch one after the other. They are in no dict, because a recording would
                take it apart in every call.
        """
        tensors, batch = args[: len(self._names)], args[len(self._names) :]
        task, regulariser = functional_call(self.objective, dict(zip(self._names, tensors, strict=True)), batch)
        total = self.total(task, regulariser, self.regulariser_weight)
        gradients = torch.autograd.grad(total, tensors[: len(self.parameters)], allow_unused=True)
        return torch.stack((task.detach().float(), regulariser.detach().float())), *gradients

    def update_weights(self) -> None:
        if self._fused is None:
            super().update_weights()
            return
        if self.config.clip:
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip)
        self._fused.step()

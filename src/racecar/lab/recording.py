"""A training step, recorded once: afterwards its operations are repeated, without Python per layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from racecar.lab.experiment import Loss
from racecar.lab.variants import Regularised

aten = torch.ops.aten
NAMES = (
    *("add", "addmm", "baddbmm", "bmm", "cat", "clamp_min", "div", "expand", "mm", "mul", "native_batch_norm", "neg"),
    *("pow", "relu", "select", "square", "squeeze", "stack", "sub", "sum", "t", "tanh", "transpose", "unsqueeze"),
    *("view", "_log_softmax", "_log_softmax_backward_data"),
)
DIRECT = {
    getattr(getattr(aten, name), overload): getattr(torch, name, None) or getattr(torch.Tensor, name)
    for name in NAMES
    for overload in getattr(aten, name).overloads()
}
"""The same as functions that Python calls faster: a fifth of the time of a small net."""


def record(function: Callable[..., Any], *args: Any) -> nn.Module:
    """The operations of a function on tensors, its gradients included, to be called as the function is. Numbers and
    what the function holds besides stay as they are now. No random number is used up, but tensors are changed in
    place, where the function does so."""
    devices = {tensor.device for tensor in torch.utils._pytree.tree_leaves(args) if isinstance(tensor, Tensor)}
    with torch.random.fork_rng([device for device in devices if device.type == "cuda"]):
        recorded = make_fx(lambda *args: function(*args))(*args)  # it would count a method's self
    for node in recorded.graph.nodes:
        if (same := _same(node)) is not None:
            node.replace_all_uses_with(same)
    for node in recorded.graph.nodes:
        node.target = DIRECT.get(node.target, node.target)
    recorded.graph.eliminate_dead_code()
    recorded.recompile()
    return recorded


def _same(node: fx.Node) -> fx.Node | None:
    """What a node only repeats, where no gradient is asked for: a tenth of the time of a small net."""
    if node.target == aten.detach.default:
        return node.all_input_nodes[0]
    if node.target == aten.t.default and node.all_input_nodes[0].target == aten.t.default:
        return node.all_input_nodes[0].all_input_nodes[0]
    return None


class Step:
    """Losses and gradients of one net that does the same in every step, whatever the data."""

    def __init__(self, module: Regularised, loss: Loss, coefficient: float) -> None:
        self.module, self.loss, self.coefficient = module, loss, coefficient
        self.parameters, self.buffers = dict(module.named_parameters()), dict(module.named_buffers())
        self._recorded: nn.Module | None = None

    def __call__(self, x: Tensor, y: Tensor, noise: Tensor | None) -> Tensor:
        """Leaves the gradients with the parameters; returns the loss of the task and the regulariser, (2,)."""
        if self._recorded is None:
            parameters = {name: one.detach().clone().requires_grad_() for name, one in self.parameters.items()}
            buffers = {name: one.clone() for name, one in self.buffers.items()}  # recording changes them, too
            self._recorded = record(self._step, parameters, buffers, x, y, noise)
        with torch.no_grad():
            losses, gradients = self._recorded(self.parameters, self.buffers, x, y, noise)
        for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
            parameter.grad = gradient
        return losses

    def _step(self, parameters: Any, buffers: Any, x: Any, y: Any, noise: Any) -> Any:
        output, regulariser = functional_call(self.module, {**parameters, **buffers}, (x, noise))
        task = self.loss(output, y)
        total = task if self.coefficient == 0 else task + self.coefficient * regulariser
        gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
        return torch.stack((task.detach().float(), regulariser.detach().float())), gradients

"""Fine-tuning on few samples: copies of nets for every learning rate and set of samples, trained as one batched net."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from racecar.support.interrupts import deferred
from racecar_lab.measures.probe import features
from racecar_lab.task import Split
from racecar_lab.training.steps.cuda_graph import Captured

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Tuned:
    """The weights of fine-tuned copies, and one module that they are loaded into."""

    model: nn.Module
    states: Tensors
    """Parameters and buffers by name, each (learning rates, nets, sets, …)."""

    def __call__(self, lr: int, net: int, chosen: int) -> nn.Module:
        """The copy of a net that was trained with a learning rate on a set of samples, each given by its index. The
        module is in evaluation mode, and is overwritten by the next call."""
        self.model.load_state_dict({name: tensor[lr, net, chosen] for name, tensor in self.states.items()})
        return self.model.eval()


def tune(
    models: Sequence[nn.Module],
    train: Split,
    classes: int,
    *,
    steps: int,
    lrs: Sequence[float],
    batch: int,
    generators: Sequence[Sequence[torch.Generator]],
) -> Tuned:
    """Train all layers of each net on few samples, with a new classifier that starts at zero, by Adam at a constant
    learning rate.

    On a GPU, a step of all copies is one CUDA graph, because small nets wait for kernel launches otherwise.

    Args:
        models: E nets of one kind without classifier (see ``body``); they are not changed.
        train: B sets of labelled samples for each net, x (E, B, N, …), y (E, B, N).
        steps: number of steps.
        lrs: learning rates; each is tried on every set.
        batch: number of samples in a step, drawn anew for each step; all N if there are fewer.
        generators: for these draws, one for each net and set.
    """
    copies = _Copies([_with_classifier(model, train.x[0, 0, :1], classes) for model in models], train, lrs)
    count = train.y.shape[2]
    orders = [
        torch.stack([_random_indices(count, batch, generator) for _ in range(steps)])
        for net_generators in generators
        for generator in net_generators
    ]
    step = Captured(copies.step) if train.x.is_cuda else lambda _, chosen: copies.step(chosen)
    for chosen in torch.stack(orders, 1).to(train.y.device):
        step(None, chosen)
    return copies.tuned()


class _Copies:
    """All copies as one batched net: every tensor has a first dimension of learning rates × nets × sets."""

    def __init__(self, fresh: Sequence[nn.Module], train: Split, lrs: Sequence[float]) -> None:
        self.model, self.shape = fresh[0], (len(lrs), *train.y.shape[:2])
        self.x, self.y = train.x.flatten(0, 1), train.y.flatten(0, 1)
        self.parameters = self._stack([dict(net.named_parameters()) for net in fresh])
        self.buffers = self._stack([dict(net.named_buffers()) for net in fresh])
        parts = [parameter.chunk(len(lrs)) for parameter in self.parameters.values()]
        self.optimisers = [
            torch.optim.Adam([part[i] for part in parts], lr, capturable=train.x.is_cuda) for i, lr in enumerate(lrs)
        ]

    def _stack(self, named: Sequence[Tensors]) -> Tensors:
        """Tensors of each net by name, repeated for learning rates and sets, and stacked."""
        lrs, nets, sets = self.shape
        each = torch.arange(nets).repeat_interleave(sets).repeat(lrs).tolist()
        return {name: torch.stack([named[i][name].detach() for i in each]) for name in named[0]}

    def step(self, chosen: Tensor) -> Tensor:
        """Do a step of every copy, on the samples with the indices ``chosen`` (E · B, batch) in each set."""
        rows = torch.arange(len(chosen), device=chosen.device)[:, None]
        data = [_repeated(tensor[rows, chosen], self.shape[0]) for tensor in (self.x, self.y)]
        with deferred():
            gradients, buffers = vmap(grad(self._loss, has_aux=True))(self.parameters, self.buffers, *data)
        for name, buffer in self.buffers.items():
            buffer.copy_(buffers[name])
        parts = [gradients[name].contiguous().chunk(self.shape[0]) for name in self.parameters]
        for i, optimiser in enumerate(self.optimisers):
            for parameter, part in zip(optimiser.param_groups[0]["params"], parts, strict=True):
                parameter.grad = part[i]
            optimiser.step()
        return chosen

    def _loss(self, parameters: Tensors, buffers: Tensors, x: Tensor, y: Tensor) -> tuple[Tensor, Tensors]:
        buffers = {name: buffer.clone() for name, buffer in buffers.items()}  # the net changes them in place
        return F.cross_entropy(functional_call(self.model, parameters | buffers, (x,)), y), buffers

    def tuned(self) -> Tuned:
        tensors = self.parameters | self.buffers
        states = {name: tensor.unflatten(0, self.shape) for name, tensor in tensors.items()}
        return Tuned(self.model, states)


def _repeated(x: Tensor, times: int) -> Tensor:
    """A tensor (N, …) repeated along its first dimension, (times · N, …)."""
    return x.repeat(times, *(1,) * (x.dim() - 1))


def _random_indices(count: int, batch: int, generator: torch.Generator) -> Tensor:
    """``batch`` different indices below ``count``, or all if there are fewer."""
    return torch.randperm(count, generator=generator)[:batch]


def _with_classifier(model: nn.Module, x: Tensor, classes: int) -> nn.Module:
    """A copy of a net without classifier, with a linear one of zeros for its features of x (1, …)."""
    model = copy.deepcopy(model)
    head = nn.Linear(features(model, x).shape[1], classes).to(x)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model.classifier = head
    return model.train()

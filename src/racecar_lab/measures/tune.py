"""Fine-tuning on few samples: many copies of many nets as one, for every learning rate and set of samples."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from racecar.support.interrupts import deferred
from racecar_lab.experiment import Split
from racecar_lab.measures.probe import features
from racecar_lab.training.steps.cuda_graph import Captured

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Tuned:
    """Fine-tuned copies. One model lends itself to all of them."""

    model: nn.Module
    states: Tensors
    """Each of shape (learning rates, nets, sets, …)."""

    def __call__(self, lr: int, net: int, chosen: int) -> nn.Module:
        """The copy that was trained with a learning rate, of a net, on a set; in evaluation mode, until the next
        call."""
        self.model.load_state_dict({name: one[lr, net, chosen] for name, one in self.states.items()})
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
    """All of each net trained on few samples, with a classifier of zeros, by Adam without schedule.

    On a GPU, a step of all copies is one CUDA graph: they wait for launches otherwise.

    Args:
        models: E nets of one kind, as ``body`` gives them; not changed.
        train: B sets of labelled samples for each, x (E, B, N, …), y (E, B, N).
        steps: of Adam.
        lrs: learning rates; each is tried on every set.
        batch: samples in a step, drawn anew for each; all, if there are fewer.
        generators: what draws them, for every net one for each set.
    """
    copies = _Copies([_with_classifier(one, train.x[0, 0, :1], classes) for one in models], train, lrs)
    count = train.y.shape[2]
    orders = [torch.stack([_some(count, batch, one) for _ in range(steps)]) for each in generators for one in each]
    do = Captured(copies.step) if train.x.is_cuda else lambda _, chosen: copies.step(chosen)
    for chosen in torch.stack(orders, 1).to(train.y.device):
        do(None, chosen)
    return copies.tuned()


class _Copies:
    """One batched net through torch.func: every tensor has a first dimension for learning rates, nets and sets."""

    def __init__(self, fresh: Sequence[nn.Module], train: Split, lrs: Sequence[float]) -> None:
        self.model, self.shape = fresh[0], (len(lrs), *train.y.shape[:2])
        self.x, self.y = train.x.flatten(0, 1), train.y.flatten(0, 1)
        self.parameters = self._stack([dict(net.named_parameters()) for net in fresh])
        self.buffers = self._stack([dict(net.named_buffers()) for net in fresh])
        parts = [one.chunk(len(lrs)) for one in self.parameters.values()]
        self.optimisers = [
            torch.optim.Adam([part[i] for part in parts], lr, capturable=train.x.is_cuda) for i, lr in enumerate(lrs)
        ]

    def _stack(self, named: Sequence[Tensors]) -> Tensors:
        lrs, nets, sets = self.shape
        each = torch.arange(nets).repeat_interleave(sets).repeat(lrs).tolist()
        return {name: torch.stack([named[i][name].detach() for i in each]) for name in named[0]}

    def step(self, chosen: Tensor) -> Tensor:
        """One of every copy; chosen: samples (E · B, batch) of each set."""
        each = torch.arange(len(chosen), device=chosen.device)[:, None]
        data = [_repeated(one[each, chosen], self.shape[0]) for one in (self.x, self.y)]
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
        buffers = {name: one.clone() for name, one in buffers.items()}  # the net changes them in place
        return F.cross_entropy(functional_call(self.model, parameters | buffers, (x,)), y), buffers

    def tuned(self) -> Tuned:
        states = {name: one.unflatten(0, self.shape) for name, one in (self.parameters | self.buffers).items()}
        return Tuned(self.model, states)


def _repeated(x: Tensor, times: int) -> Tensor:
    """(N, …) → (times · N, …)"""
    return x.repeat(times, *(1,) * (x.dim() - 1))


def _some(count: int, batch: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(count, generator=generator)[:batch]


def _with_classifier(model: nn.Module, x: Tensor, classes: int) -> nn.Module:
    model = copy.deepcopy(model)
    head = nn.Linear(features(model, x).shape[1], classes).to(x)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model.classifier = head
    return model.train()

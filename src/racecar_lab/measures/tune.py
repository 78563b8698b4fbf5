"""Fine-tuning on few samples: copies of nets for every learning rate and set of samples, trained as one batched net."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

from racecar.support.interrupts import deferred
from racecar_lab.measures.probe import features
from racecar_lab.task import Split
from racecar_lab.training.steps.cuda_graph import Captured

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Tuned:
    """Fine-tuned copies of nets: their weights, and one module that those of a copy are loaded into."""

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
    fresh = [_with_classifier(model, train.x[0, 0, :1], classes) for model in models]
    shape = len(lrs), *train.y.shape[:2]
    parameters, buffers = stack_module_state([fresh[net] for _, net, _ in product(*map(range, shape))])
    parameters = {name: parameter.detach() for name, parameter in parameters.items()}
    parts = zip(*(parameter.chunk(len(lrs)) for parameter in parameters.values()), strict=True)
    groups = [{"params": list(part), "lr": lr} for part, lr in zip(parts, lrs, strict=True)]
    optimiser = torch.optim.Adam(groups, capturable=train.x.is_cuda)

    def loss(parameters: Tensors, buffers: Tensors, x: Tensor, y: Tensor) -> tuple[Tensor, Tensors]:
        buffers = {name: buffer.clone() for name, buffer in buffers.items()}  # the net changes them in place
        return F.cross_entropy(functional_call(fresh[0], parameters | buffers, (x,)), y), buffers

    def step(kind: None, chosen: Tensor) -> Tensor:
        """A step of every copy, on the samples with the indices ``chosen`` (E · B, batch) in the sets."""
        rows = torch.arange(len(chosen), device=chosen.device)[:, None]
        x, y = (torch.cat([tensor.flatten(0, 1)[rows, chosen]] * len(lrs)) for tensor in (train.x, train.y))
        with deferred():
            gradients, new_buffers = vmap(grad(loss, has_aux=True))(parameters, buffers, x, y)
        for name, buffer in buffers.items():
            buffer.copy_(new_buffers[name])
        for i, group in enumerate(optimiser.param_groups):
            for name, parameter in zip(parameters, group["params"], strict=True):
                parameter.grad = gradients[name].contiguous().chunk(len(lrs))[i]
        optimiser.step()
        return chosen

    captured = Captured(step) if train.x.is_cuda else step
    count = train.y.shape[2]
    orders = [
        torch.stack([torch.randperm(count, generator=generator)[:batch] for _ in range(steps)])
        for net_generators in generators
        for generator in net_generators
    ]
    for chosen in torch.stack(orders, 1).to(train.y.device):
        captured(None, chosen)
    states = {name: tensor.unflatten(0, shape) for name, tensor in (parameters | buffers).items()}
    return Tuned(fresh[0], states)


def _with_classifier(model: nn.Module, x: Tensor, classes: int) -> nn.Module:
    """A copy of a net that has no classifier, with a linear classifier behind it whose weights are 0; x (1, …) is an
    example input, from which the number of features is read."""
    model = copy.deepcopy(model)
    head = nn.Linear(features(model, x).shape[1], classes).to(x)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model.classifier = head
    return model.train()

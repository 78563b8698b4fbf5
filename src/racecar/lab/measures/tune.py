"""Fine-tuning on few samples: of one net many copies at once, one for every learning rate and set of samples."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn import functional as F

from racecar.lab.experiment import Split
from racecar.lab.measures.probe import features
from racecar.lab.training.steps.cuda_graph import Captured


def tune(
    model: nn.Module,
    train: Split,
    classes: int,
    *,
    steps: int,
    lrs: Sequence[float],
    batch: int,
    generators: Sequence[torch.Generator],
) -> list[list[nn.Module]]:
    """All of a net trained on few samples, with a classifier of zeros, by Adam without schedule.

    Args:
        model: as ``body`` gives it; not changed.
        train: B sets of labelled samples, x (B, N, …), y (B, N).
        steps: of Adam.
        lrs: learning rates; each is tried on every set.
        batch: samples in a step, drawn anew for each; all, if there are fewer.
        generators: what draws them, one for each set.

    Returns:
        For each learning rate B nets, in evaluation mode.
    """
    fresh, sets = _with_classifier(model, train.x[0, :1], classes), len(train.y)
    parameters, buffers = stack_module_state([fresh] * (len(lrs) * sets))
    which = torch.arange(sets, device=train.y.device).repeat(len(lrs))[:, None]
    whole = {name: tensor.detach() for name, tensor in parameters.items()}
    parts = [[one[i * sets : (i + 1) * sets] for one in whole.values()] for i in range(len(lrs))]
    graphed = train.x.is_cuda
    optimisers = [torch.optim.Adam(part, lr, capturable=graphed) for part, lr in zip(parts, lrs, strict=True)]

    def loss(own: dict[str, Tensor], kept: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        kept = {name: one.clone() for name, one in kept.items()}  # the net changes them in place
        return F.cross_entropy(functional_call(fresh, (own, kept), (x,)), y), kept

    def step(chosen: Tensor) -> Tensor:
        """chosen: (B, batch)"""
        chosen = chosen[which[:, 0]]
        gradients, after = vmap(grad(loss, has_aux=True))(
            whole, buffers, train.x[which, chosen], train.y[which, chosen]
        )
        for name, tensor in buffers.items():
            tensor.copy_(after[name])
        for i, (part, optimiser) in enumerate(zip(parts, optimisers, strict=True)):
            for tensor, gradient in zip(part, gradients.values(), strict=True):
                tensor.grad = gradient[i * sets : (i + 1) * sets]
            optimiser.step()
        return chosen

    orders = [torch.stack([torch.randperm(train.y.shape[1], generator=one)[:batch] for _ in range(steps)])
              for one in generators]  # fmt: skip
    replayed = Captured(step)
    for chosen in torch.stack(orders, 1).to(train.y.device):
        if graphed:
            replayed(None, chosen)
        else:
            step(chosen)
    return [[_copy(fresh, whole | buffers, i * sets + j) for j in range(sets)] for i in range(len(lrs))]


def _with_classifier(model: nn.Module, x: Tensor, classes: int) -> nn.Module:
    model = copy.deepcopy(model)
    head = nn.Linear(features(model, x).shape[1], classes).to(x)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model.classifier = head
    return model.train()


def _copy(model: nn.Module, stacked: dict[str, Tensor], i: int) -> nn.Module:
    model = copy.deepcopy(model)
    model.load_state_dict({name: tensor[i] for name, tensor in stacked.items()})
    return model.eval()

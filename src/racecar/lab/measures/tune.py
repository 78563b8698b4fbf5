"""Fine-tuning on few samples: many copies of one net side by side, for every learning rate and set of samples."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
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

    On a GPU, a step of all copies is one CUDA graph: they wait for launches otherwise.

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
    fresh, graphed = _with_classifier(model, train.x[0, :1], classes), train.x.is_cuda
    tuned = [[copy.deepcopy(fresh) for _ in train.y] for _ in lrs]
    optimisers = [
        torch.optim.Adam([p for net in nets for p in net.parameters()], lr, capturable=graphed)
        for nets, lr in zip(tuned, lrs, strict=True)
    ]

    def step(chosen: Tensor) -> Tensor:
        """One of every copy; chosen: (B, batch)"""
        for nets, optimiser in zip(tuned, optimisers, strict=True):
            optimiser.zero_grad()
            for net, x, y, some in zip(nets, train.x, train.y, chosen, strict=True):
                F.cross_entropy(net(x[some]), y[some]).backward()
            optimiser.step()
        return chosen

    orders = [torch.stack([_some(train.y.shape[1], batch, one) for _ in range(steps)]) for one in generators]
    replayed = Captured(step)
    for chosen in torch.stack(orders, 1).to(train.y.device):
        if graphed:
            replayed(None, chosen)
        else:
            step(chosen)
    return [[net.eval() for net in nets] for nets in tuned]


def _some(count: int, batch: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(count, generator=generator)[:batch]


def _with_classifier(model: nn.Module, x: Tensor, classes: int) -> nn.Module:
    model = copy.deepcopy(model)
    head = nn.Linear(features(model, x).shape[1], classes).to(x)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model.classifier = head
    layout = torch.channels_last if x.is_cuda and x.dim() == 4 else torch.preserve_format
    return model.train().to(memory_format=layout)  # type: ignore[call-overload]

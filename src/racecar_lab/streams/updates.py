"""Steps of one net's parameters: Adam, SGD, a decoupled step, and Shrink & Perturb."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from racecar_lab.streams.nets import StreamNet, Tensors

BETAS, EPS = (0.9, 0.999), 1e-8
Moments = dict[str, Tensors]
"""Of Adam: "mean" and "square" of the gradient, and the "count" of steps, each by the parameter's name."""


def no_moments(parameters: Tensors, each: bool = False) -> Moments:
    """As they are before the first step.

    Args:
        each: every single weight has its own count of steps, so that a weight that starts anew is corrected for bias as
            one of a new net.
    """
    zeros = {name: torch.zeros_like(p) for name, p in parameters.items()}
    counts = {name: torch.zeros_like(p if each else p.sum()) for name, p in parameters.items()}
    return {"mean": zeros, "square": {name: one.clone() for name, one in zeros.items()}, "count": counts}


def adam(parameters: Tensors, gradients: Tensors, moments: Moments, lr: Tensor) -> tuple[Tensors, Moments]:
    """A step as that of torch's Adam, and the moments after it."""
    first, second = BETAS
    after: Moments = {"mean": {}, "square": {}, "count": {}}
    stepped: Tensors = {}
    for name, g in gradients.items():
        count = after["count"][name] = moments["count"][name] + 1
        mean = after["mean"][name] = torch.lerp(g, moments["mean"][name], first)
        square = after["square"][name] = torch.lerp(g.square(), moments["square"][name], second)
        scale = (square / (1 - second**count)).sqrt() + EPS
        stepped[name] = parameters[name] - lr * mean / (1 - first**count) / scale
    return stepped, after


def sgd(parameters: Tensors, gradients: Tensors, moments: Moments, lr: Tensor) -> tuple[Tensors, Moments]:
    """A plain step, without momentum."""
    return {name: parameters[name] - lr * g for name, g in gradients.items()}, moments


OPTIMISERS: dict[str, Callable[[Tensors, Tensors, Moments, Tensor], tuple[Tensors, Moments]]] = {
    "adam": adam,
    "sgd": sgd,
}


def decoupled(parameters: Tensors, pull: Tensors, size: Tensor) -> Tensors:
    """θ − size · pull, after the optimiser's step and past its moments, as AdamW does for weight decay.

    Args:
        pull: the penalty's gradient before the optimiser's step.
        size: learning rate times strength.
    """
    return {name: p - size * pull[name] for name, p in parameters.items()}


def shrink_and_perturb(
    net: StreamNet, parameters: Tensors, key: Tensor, number: Tensor, shrink: Tensor, noise: Tensor
) -> Tensors:
    """(1 − shrink) θ + noise · (a fresh start), after every step, the parameters of norms left out.

    Of the four forms that go by this name this is that of Kumar et al. (2023). The others: decay in the loss and normal
    noise in every step (Dohare et al. 2024), once before each training (Ash & Adams 2020), and once for every chunk of
    data.
    """
    return {
        name: p if net.is_norm(name) else (1 - shrink) * p + noise * net.fresh(name, key, number + i)
        for i, (name, p) in enumerate(parameters.items())
    }

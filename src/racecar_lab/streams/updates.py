"""Steps of one net's parameters: Adam, SGD, a decoupled step, and Shrink & Perturb."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from racecar_lab.streams.nets import StreamNet, Tensors

BETAS, EPS = (0.9, 0.999), 1e-8
Moments = dict[str, Tensors]
"""Adam's state: running averages "mean" of the gradient and "square" of its square, and the "count" of steps, each by
parameter name."""


def no_moments(parameters: Tensors, each: bool = False) -> Moments:
    """Adam's moments before the first step: zeros.

    Args:
        parameters: the net's parameters, for their names and shapes.
        each: count the steps of every single weight instead of every parameter, so that a reinitialised weight gets
            the bias correction of a new one.
    """
    zeros = {name: torch.zeros_like(p) for name, p in parameters.items()}
    counts = {name: torch.zeros_like(p if each else p.sum()) for name, p in parameters.items()}
    return {"mean": zeros, "square": {name: zero.clone() for name, zero in zeros.items()}, "count": counts}


def adam(parameters: Tensors, gradients: Tensors, moments: Moments, lr: Tensor) -> tuple[Tensors, Moments]:
    """Parameters and moments after a step of Adam, equal to that of ``torch.optim.Adam``."""
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
    """Parameters after a step of SGD without momentum, and the moments, which it does not use or change."""
    return {name: parameters[name] - lr * g for name, g in gradients.items()}, moments


OPTIMISERS: dict[str, Callable[[Tensors, Tensors, Moments, Tensor], tuple[Tensors, Moments]]] = {
    "adam": adam,
    "sgd": sgd,
}
"""Optimisers by name: functions from parameters, gradients, moments and learning rate to the new parameters and
moments."""


def decoupled(parameters: Tensors, gradients: Tensors, size: Tensor) -> Tensors:
    """θ − size · gradients, a step that follows the optimiser's and skips its moments, as weight decay in AdamW does.

    Args:
        gradients: the penalty's gradients before the optimiser's step.
        size: learning rate times weight, shape ().
    """
    return {name: p - size * gradients[name] for name, p in parameters.items()}


def shrink_and_perturb(
    net: StreamNet, parameters: Tensors, fresh: Callable[[str], Tensor], shrink: Tensor, noise: Tensor
) -> Tensors:
    """(1 − shrink) θ + noise · θ_new, done after every step, with freshly initialised θ_new; parameters of norms stay.

    Four methods have this name; this one is that of Kumar et al. (2023). The others add weight decay to the loss and
    normal noise in every step (Dohare et al. 2024), or shrink and perturb once before each training (Ash & Adams 2020),
    or once for every chunk of data.
    """
    return {name: p if net.is_norm(name) else (1 - shrink) * p + noise * fresh(name) for name, p in parameters.items()}

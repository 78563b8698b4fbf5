"""The optimiser of a stage and how its step size goes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from racecar.lab.config import Config


def make_optimiser(
    parameters: Iterable[Tensor], config: Config, weight_decay: float, fused: bool = False
) -> torch.optim.Optimizer:
    """As the configuration says; weight decay is decoupled in "adamw" and part of the gradient elsewhere.

    Args:
        fused: all parameters are stepped by one kernel; always so on a GPU.
    """
    parameters = list(parameters)
    one = True if fused or all(parameter.is_cuda for parameter in parameters) else None
    if config.optimiser == "sgd":
        return torch.optim.SGD(parameters, config.lr, config.momentum, weight_decay=weight_decay, fused=one)
    kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return kind(parameters, config.lr, weight_decay=weight_decay, fused=one)


def step_size(config: Config, step: int, total: int) -> float:
    """The learning rate of a step."""
    if config.schedule == "cosine":
        return config.lr * 0.5 * (1 + math.cos(math.pi * step / total))
    return config.lr


def set_step_size(optimiser: torch.optim.Optimizer, lr: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = lr

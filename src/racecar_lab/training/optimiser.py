"""The optimiser of a stage and how its step size goes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from racecar_lab.config import Config, Schedule

WARM_UP = 0.3
"""Share of the steps in which the step size of one cycle rises."""
RISE, FALL = 25.0, 1e4
"""It begins at the largest one divided by the first, and ends at this one divided by the second."""


def make_optimiser(
    parameters: Iterable[Tensor],
    config: Config,
    weight_decay: float,
    fused: bool = False,
    betas: tuple[float, float] = (0.9, 0.999),
) -> torch.optim.Optimizer:
    """As the configuration says; weight decay is decoupled in "adamw" and part of the gradient elsewhere.

    Args:
        fused: all parameters are stepped by one kernel; always so on a GPU.
        betas: of Adam.
    """
    parameters = list(parameters)
    cuda = all(parameter.is_cuda for parameter in parameters)
    one = True if fused or cuda else None
    if config.optimiser == "sgd":
        return torch.optim.SGD(parameters, config.lr, config.momentum, weight_decay=weight_decay, fused=one)
    kind = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return kind(parameters, config.lr, betas, weight_decay=weight_decay, fused=one, capturable=cuda)


class Fused:
    """Steps of a fused Adam without its bookkeeping, which takes longer than a small net; the state stays its own."""

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self.optimiser = optimiser
        self._lists: list[list[Tensor]] = []
        self._steps = torch.empty(0)

    def step(self) -> None:
        (group,) = self.optimiser.param_groups
        if not self._lists:  # the first one makes the state, or changes the one that was loaded
            self.optimiser.step()
            states = [self.optimiser.state[parameter] for parameter in group["params"]]
            self._steps = torch.stack([state["step"] for state in states])
            for state, step in zip(states, self._steps, strict=True):  # views, so that one addition counts them all
                state["step"] = step
            self._lists = [[state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step")]
            return
        means, squares, steps = self._lists
        update = torch._fused_adamw_ if group["decoupled_weight_decay"] else torch._fused_adam_
        gradients = [parameter.grad for parameter in group["params"]]
        beta1, beta2 = group["betas"]
        with torch.no_grad():
            self._steps += 1
            update(
                group["params"], gradients, means, squares, [], steps, lr=group["lr"], beta1=beta1, beta2=beta2,
                weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
            )  # fmt: skip


def step_size(
    config: Config, step: int, total: int, lr: float | None = None, schedule: Schedule | None = None
) -> float:
    """The learning rate of a step; ``lr`` is the largest one, and ``schedule`` how it goes, if they are not those of
    the configuration."""
    most, schedule = config.lr if lr is None else lr, schedule or config.schedule
    if schedule == "cosine":
        return most * 0.5 * (1 + math.cos(math.pi * step / total))
    return _one_cycle(step, total, most) if schedule == "onecycle" else most


def _one_cycle(step: int, total: int, most: float) -> float:
    """As torch's OneCycleLR with its defaults has it: up along a cosine, then down along another."""
    least, top = most / RISE, WARM_UP * total - 1
    if step <= top:
        return _along(least, most, step / top)
    return _along(most, least / FALL, (step - top) / (total - 1 - top))


def _along(start: float, end: float, done: float) -> float:
    """From start to end along half a cosine."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * done))


def set_step_size(optimiser: torch.optim.Optimizer, lr: float | Tensor) -> None:
    """A tensor may change its value later."""
    for group in optimiser.param_groups:
        group["lr"] = lr


def fading(step: int, total: int) -> float:
    """What a coefficient that fades is multiplied by: from 1 in the first step towards 0 after the last."""
    return 1 - step / total


def load_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Take up a saved state; whether steps can be recorded depends on this machine, not on the one that saved it."""
    recordable = [group.get("capturable") for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, mine in zip(optimiser.param_groups, recordable, strict=True):
        if mine is not None:
            group["capturable"] = mine

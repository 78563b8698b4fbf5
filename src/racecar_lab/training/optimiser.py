"""The optimiser of a stage and its learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from racecar_lab.config import Config, Schedule

WARM_UP = 0.3
"""Share of the steps in which the learning rate of the one-cycle schedule rises."""
RISE, FALL = 25.0, 1e4
"""The one-cycle schedule starts at the peak learning rate / RISE, and ends at this start / FALL."""


def make_optimiser(
    parameters: Iterable[Tensor],
    config: Config,
    weight_decay: float,
    fused: bool = False,
    betas: tuple[float, float] = (0.9, 0.999),
) -> torch.optim.Optimizer:
    """The configuration's optimiser: SGD, Adam or AdamW. Weight decay is decoupled in AdamW and part of the gradient in
    the others.

    Args:
        fused: update all parameters in one kernel on a CPU, too; on a GPU it is always so.
        betas: the two decay rates of Adam.
    """
    parameters = list(parameters)
    cuda = all(parameter.is_cuda for parameter in parameters)
    use_fused = True if fused or cuda else None
    if config.optimiser == "sgd":
        return torch.optim.SGD(parameters, config.lr, config.momentum, weight_decay=weight_decay, fused=use_fused)
    adam = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return adam(parameters, config.lr, betas, weight_decay=weight_decay, fused=use_fused, capturable=cuda)


class Fused:
    """A fused Adam or AdamW whose step skips torch's bookkeeping in Python. The state stays that of the optimiser.

    It saves 25 to 36 % of a step of peaks and digits (one CPU thread): about 0.2 ms in every step.
    """

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self.optimiser = optimiser
        self._lists: list[list[Tensor]] = []
        self._steps = torch.empty(0)

    def step(self) -> None:
        """Update the parameters from their gradients."""
        (group,) = self.optimiser.param_groups
        if not self._lists:  # torch's own step creates the state, or continues the one that was loaded
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


def learning_rate(
    config: Config, step: int, total: int, lr: float | None = None, schedule: Schedule | None = None
) -> float:
    """The learning rate of a step.

    Args:
        step: counted from 0.
        total: number of steps in the training.
        lr: the peak learning rate; None: the configuration's.
        schedule: the learning-rate schedule; None: the configuration's.
    """
    peak, schedule = config.lr if lr is None else lr, schedule or config.schedule
    if schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * step / total))
    return _one_cycle(step, total, peak) if schedule == "onecycle" else peak


def _one_cycle(step: int, total: int, peak: float) -> float:
    """The one-cycle schedule, as torch's OneCycleLR with its defaults: up along a cosine, then down along another."""
    start, top = peak / RISE, WARM_UP * total - 1
    if step <= top:
        return _cosine(start, peak, step / top)
    return _cosine(peak, start / FALL, (step - top) / (total - 1 - top))


def _cosine(start: float, end: float, progress: float) -> float:
    """A value between start and end, along half a cosine; progress runs from 0 to 1."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * progress))


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float | Tensor) -> None:
    """Set the learning rate of all parameters. In a CUDA graph it is a tensor, whose value may change later."""
    for group in optimiser.param_groups:
        group["lr"] = lr


def fading(step: int, total: int) -> float:
    """A factor that falls linearly from 1 in the first step towards 0 after the last."""
    return 1 - step / total


def load_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a saved state. Whether steps can be captured as CUDA graphs (``capturable``) is kept: it depends on this
    machine and not on the one that saved the state."""
    capturable = [group.get("capturable") for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, value in zip(optimiser.param_groups, capturable, strict=True):
        if value is not None:
            group["capturable"] = value

"""The optimiser of a stage and its learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from racecar_lab.config import Config, Schedule

WARM_UP = 0.3
"""Share of the steps in which the learning rate of the one-cycle schedule rises."""
RISE, FALL = 25.0, 1e4
"""The one-cycle schedule starts at the peak learning rate / RISE, and ends at this start / FALL."""


def make_optimiser(
    groups: Iterable[tuple[Sequence[Tensor], float]], config: Config, betas: tuple[float, float], fused: bool = False
) -> torch.optim.Optimizer:
    """The configuration's optimiser: SGD, Adam or AdamW. Weight decay is decoupled in AdamW and part of the gradient in
    the others.

    Args:
        groups: pairs of parameters and their weight decay.
        betas: the two decay rates of Adam.
        fused: update all parameters in one kernel on a CPU, too; on a GPU it is always so.
    """
    options: list[dict[str, Any]] = [{"params": parameters, "weight_decay": decay} for parameters, decay in groups]
    cuda = options[0]["params"][0].is_cuda
    use_fused = True if fused or cuda else None
    if config.optimiser == "sgd":
        return torch.optim.SGD(options, config.lr, config.momentum, fused=use_fused)
    adam = torch.optim.AdamW if config.optimiser == "adamw" else torch.optim.Adam
    return adam(options, config.lr, betas, fused=use_fused, capturable=cuda)


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


def learning_rate(peak: float, schedule: Schedule, step: int, total: int) -> float:
    """The learning rate at a step, counted from 0, of ``total``. The one-cycle schedule is torch's OneCycleLR with its
    defaults: up along a cosine, then down along another."""
    if schedule == "constant":
        return peak
    if schedule == "cosine":
        return _cosine(peak, 0.0, step / total)
    start, top = peak / RISE, WARM_UP * total - 1
    if step <= top:
        return _cosine(start, peak, step / top)
    return _cosine(peak, start / FALL, (step - top) / (total - 1 - top))


def _cosine(start: float, end: float, progress: float) -> float:
    """A value between start and end, along half a cosine; progress runs from 0 to 1."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * progress))


def set_learning_rates(optimiser: torch.optim.Optimizer, lrs: Iterable[float | Tensor]) -> None:
    """Set the learning rate of each group. In a CUDA graph it is a tensor, whose value may change later."""
    for group, lr in zip(optimiser.param_groups, lrs, strict=True):
        group["lr"] = lr


def load_optimiser(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a saved state into an optimiser. Whether steps can be captured as CUDA graphs (``capturable``) is kept: it
    depends on this machine and not on the one that saved the state."""
    capturable = [group.get("capturable") for group in optimiser.param_groups]
    optimiser.load_state_dict(state)
    for group, value in zip(optimiser.param_groups, capturable, strict=True):
        if value is not None:
            group["capturable"] = value

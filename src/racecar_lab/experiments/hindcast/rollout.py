"""Many steps of a network, one after the other, and how far they lead from the exact solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from racecar import Racecar
from racecar_lab.datasets.waves import System
from racecar_lab.networks.periodic import CouplingNet

LARGEST = 10.0
"""Largest error that is recorded: a state that has grown far beyond the truth says no more by its size, which may also
be infinite."""
Step = Callable[[Tensor], Tensor]
"""States (N, fields, H, W) → states a step later, or a step earlier."""


class Rollout(NamedTuple):
    """Errors and energy drift of N predicted trajectories."""

    errors: Tensor
    """Relative error after every step, (N, steps)."""
    drift: Tensor
    """Energy drift after the last step, (N,)."""
    pictures: Tensor
    """First field of the first trajectory, from the given state to the last one, (steps + 1, H, W)."""


def directions(model: nn.Module, task: str, state: Tensor) -> dict[str, Step]:
    """The steps that a network can take, by name: "forward" and "backward", or "backward" alone if it was trained on
    task "backward". A network that has no inverse is run backwards by its reverse pass."""
    if task == "backward":
        return {"backward": model}
    if isinstance(model, CouplingNet):
        return {"forward": model, "backward": model.inverse}
    rr = Racecar(model, state, mode="full")

    def backward(y: Tensor) -> Tensor:
        x = rr.reverse(y)
        assert isinstance(x, Tensor)  # the network has a single input
        return x

    return {"forward": model, "backward": backward}


def relative_error(states: Tensor, truth: Tensor) -> Tensor:
    """‖state − truth‖ / ‖truth‖ of each sample, (N,): 0 is right, 1 is what zeros give; at most ``LARGEST``."""
    error = (states - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)
    return error.nan_to_num(LARGEST).clamp(max=LARGEST)


def energy_drift(system: System, states: Tensor, truth: Tensor) -> Tensor:
    """|energy / true energy − 1| of each sample, (N,); at most ``LARGEST``."""
    drift = (system.energy(states) / system.energy(truth) - 1).abs()
    return drift.nan_to_num(LARGEST).clamp(max=LARGEST)


@torch.no_grad()
def roll_out(system: System, step: Step, starts: Tensor, count: int, *, backward: bool) -> Rollout:
    """Follow trajectories for a number of steps: from their first states ``starts`` (N, fields, H, W) on; or backward,
    from their true states after so many steps back to ``starts``."""
    state = system.solve(starts, count) if backward else starts
    truth, errors, pictures = state, [], [state[0, 0]]
    for i in range(1, count + 1):
        state, truth = step(state), system.solve(starts, count - i if backward else i)
        errors.append(relative_error(state, truth))
        pictures.append(state[0, 0])
    return Rollout(torch.stack(errors, 1), energy_drift(system, state, truth), torch.stack(pictures))

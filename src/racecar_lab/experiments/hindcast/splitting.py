"""The data of hindcast: steps of a system forward in time, and the same steps backward."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar_lab.experiment import Split, Task
from racecar_lab.experiments.hindcast.config import HindcastConfig
from racecar_lab.training import rng

HORIZON = 50
"""Number of steps of the longest forecast. Training samples start at any of these times, so that a net has seen all
ages of a system."""
PART = 256
"""Number of states that are solved at once."""


def steps_of(config: HindcastConfig, seed: int) -> dict[str, Task]:
    """Task "A", states (N, fields, H, W) and those a step later, and "backward", the same pairs the other way round.

    Test samples are the first steps of trajectories that no training sample is of. In a search, a share ``valid`` of
    the training samples replaces them.
    """
    held_out = round(config.valid * config.samples)
    if config.valid and not 0 < held_out < config.samples:
        text = f"of {config.samples} samples, {held_out} are held out"
        raise ValueError(f"{text}: set more samples, or another valid")
    generator = rng.generator("hindcast", seed)
    start = config.solver.initial(config.samples, config.size, generator)
    times = torch.randint(HORIZON, (config.samples,), generator=generator)
    train = _step(config, _solve(config, start, times))
    valid = Split(train.x[:held_out], train.y[:held_out]) if held_out else None
    train = Split(train.x[held_out:], train.y[held_out:])
    test = valid or _step(config, config.solver.initial(config.tests, config.size, generator))
    forward = Task(train, test, valid)
    return {"A": forward, "backward": Task(_swapped(train), _swapped(test), valid and _swapped(valid))}


def _step(config: HindcastConfig, states: Tensor) -> Split:
    """States, and what they are a step later."""
    return Split(states, _solve(config, states, torch.ones(len(states))))


def _solve(config: HindcastConfig, states: Tensor, steps: Tensor) -> Tensor:
    parts = zip(states.split(PART), steps.split(PART), strict=True)
    return torch.cat([config.solver.solve(part, count) for part, count in parts])


def _swapped(split: Split) -> Split:
    return Split(split.y, split.x)

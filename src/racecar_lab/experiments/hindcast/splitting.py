"""The data of hindcast: steps of a system forward in time, and the same steps backward."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from racecar_lab.datasets.waves import System
from racecar_lab.experiment import Split, Task
from racecar_lab.training import rng

HORIZON = 50
"""Number of steps of the longest forecast. Training samples start at any of these times, so that a net has seen all
ages of a system."""
PART = 256
"""Number of states that are solved at once."""


@lru_cache(maxsize=2)
def steps_of(solver: System, size: int, samples: int, tests: int, valid: float, seed: int) -> dict[str, Task]:
    """Task "A", states (N, fields, H, W) and those a step later, and "backward", the same pairs the other way round;
    cached, because they take a CPU three seconds and a search needs those of two seeds for all its settings.

    Test samples are the first steps of trajectories that no training sample is of. In a search, a share ``valid`` of
    the training samples replaces them.
    """
    held_out = round(valid * samples)
    if valid and not 0 < held_out < samples:
        raise ValueError(f"of {samples} samples, {held_out} are held out: set more samples, or another valid")
    generator = rng.generator("hindcast", seed)
    start = solver.initial(samples, size, generator)
    times = torch.randint(HORIZON, (samples,), generator=generator)
    train = _step(solver, _solve(solver, start, times))
    held = Split(train.x[:held_out], train.y[:held_out]) if held_out else None
    train = Split(train.x[held_out:], train.y[held_out:])
    test = held or _step(solver, solver.initial(tests, size, generator))
    backward = Task(_swapped(train), _swapped(test), held and _swapped(held))
    return {"A": Task(train, test, held), "backward": backward}


def _step(solver: System, states: Tensor) -> Split:
    """States, and what they are a step later."""
    return Split(states, _solve(solver, states, torch.ones(len(states))))


def _solve(solver: System, states: Tensor, steps: Tensor) -> Tensor:
    parts = zip(states.split(PART), steps.split(PART), strict=True)
    return torch.cat([solver.solve(part, count) for part, count in parts])


def _swapped(split: Split) -> Split:
    return Split(split.y, split.x)

"""Measures of hindcast: errors of forecasts and hindcasts, energy drift, and pictures."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar_lab.experiment import Measured, Trained
from racecar_lab.experiments.hindcast.config import HindcastConfig
from racecar_lab.experiments.hindcast.rollout import LARGEST, Step, directions, roll_out
from racecar_lab.experiments.hindcast.splitting import HORIZON
from racecar_lab.networks.periodic import count_parameters

STEPS = (1, 10, HORIZON)
"""Numbers of steps after which errors are metrics."""
SEARCHED = 10
"""Number of steps by which a search chooses."""
SHOWN = (0, 10, 25, HORIZON)
"""Times of which pictures are recorded."""


def measure_steps(config: HindcastConfig, trained: Trained) -> Measured:
    """Errors of forecasts from the first state of every trajectory, and of hindcasts from its state after ``HORIZON``
    steps; in a search, after ``SEARCHED`` steps alone, on the samples that it holds out."""
    kind, split = trained.task.evaluated
    task = trained.stage.task
    starts = split.y if task == "backward" else split.x
    steps = directions(trained.model, task, starts[:2])
    return searched(config, steps, starts) if kind == "valid" else tested(config, trained, steps, starts)


def searched(config: HindcastConfig, steps: dict[str, Step], starts: Tensor) -> Measured:
    """The metrics of a search: the error in the direction that the network was trained in, and backward."""
    errors = {
        name: float(roll_out(config.solver, step, starts, SEARCHED, backward=name == "backward").errors[:, -1].mean())
        for name, step in steps.items()
    }
    return Measured({"valid_learnt": errors.get("forward", errors["backward"]), "valid_backward": errors["backward"]})


def tested(config: HindcastConfig, trained: Trained, steps: dict[str, Step], starts: Tensor) -> Measured:
    """All metrics of a run, curves of the error, and pictures of the first trajectory."""
    unchanged = roll_out(config.solver, lambda state: state, starts, HORIZON, backward=False)
    metrics = {f"persistence_{count}": float(unchanged.errors[:, count - 1].mean()) for count in STEPS}
    metrics["parameters"] = float(count_parameters(trained.model))
    exact = [config.solver.solve(starts[:1], time)[0, 0] for time in SHOWN]
    arrays = {"persistence": unchanged.errors.mean(0), "truth": torch.stack(exact)}
    for name, step in steps.items():
        rollout = roll_out(config.solver, step, starts, HORIZON, backward=name == "backward")
        metrics |= {f"{name}_{count}": float(rollout.errors[:, count - 1].mean()) for count in STEPS}
        metrics[f"known_{name}"] = float((1 - rollout.errors[:, -1].clamp(max=1)).mean())
        metrics[f"energy_{name}"] = float(rollout.drift.mean())
        in_time = rollout.pictures.flip(0) if name == "backward" else rollout.pictures
        arrays |= {
            f"error_{name}": rollout.errors.mean(0),
            name: in_time[list(SHOWN)].nan_to_num(0.0).clamp(-LARGEST, LARGEST),
        }
    return Measured(metrics, arrays={name: array.float().cpu() for name, array in arrays.items()})

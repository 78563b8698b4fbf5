"""Stages: the trainings of an experiment, and what is known of a stage when it is finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from racecar_lab.task import Task


@dataclass(frozen=True)
class Stage:
    """One training of an experiment: from fresh weights or from an earlier stage's, with or without the regulariser."""

    name: str
    """Name of the stage: by custom "A", "AA" (fine-tuned on the same task), "AB" (on a transfer task), "B" (that task
    from scratch)."""
    task: str = "A"
    """Name of the task whose data the stage trains on."""
    after: str | None = None
    """Name of the stage whose weights it starts from; None: fresh weights."""
    regularised: bool = True
    epochs: int | None = None
    """Number of epochs; None: that of the configuration."""
    variants: tuple[str, ...] | None = None
    """Names of the variants that have this stage; None: all."""
    network: str = ""
    """Description of the network that is trained, if it is not the experiment's usual one; otherwise empty."""
    light: bool = False
    """True if its records leave out weights and curves, for experiments with thousands of nets. No stage can start from
    it."""

    @property
    def description(self) -> str:
        """The stage in words, such as "trained from A's weights on task B without regulariser"."""
        start = "from fresh weights" if self.after is None else f"from {self.after}'s weights"
        task = "" if self.task == "A" else f" on task {self.task}"
        trained = f"{self.network} trained" if self.network else "trained"
        return f"{trained} {start}{task}{'' if self.regularised else ' without regulariser'}"


@dataclass(frozen=True, eq=False)
class Trained:
    """The trained model of a stage, with all that ``Experiment.measure`` needs to measure it."""

    stage: Stage
    model: nn.Module
    """The trained network, or several by name in an ``nn.ModuleDict``."""
    task: Task
    seed: int
    variant: str
    device: torch.device
    folder: Path | None = None
    """The data folder; None: the default one."""
    history: Mapping[str, Tensor] = field(default_factory=dict)
    """Snapshots that ``Recipe.look`` took during training, by name, stacked; the first dimension is time."""
    tasks: Mapping[str, Task] = field(default_factory=dict)
    """All tasks of the experiment, as ``Experiment.data`` returned them, by name, on the CPU."""


@dataclass(frozen=True)
class Measured:
    """The measurements of a finished stage."""

    metrics: dict[str, float]
    tables: dict[str, Any] = field(default_factory=dict)
    """Tables by name: anything that JSON can represent."""
    arrays: dict[str, Tensor] = field(default_factory=dict)
    """Small tensors by name, which figures show."""

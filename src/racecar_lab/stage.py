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
    """"A", "AA" (fine-tuned on the same task), "AB" (on a transfer task), "B" (that task from scratch)."""
    task: str = "A"
    """Name of the task that it trains on."""
    after: str | None = None
    """Name of the stage whose weights it starts from; None: fresh weights."""
    regularised: bool = True
    epochs: int | None = None
    """None: the configuration's."""
    variants: tuple[str, ...] | None = None
    """Names of the variants that have this stage; None: all."""
    network: str = ""
    """Description of the trained network, if it is not the experiment's."""
    light: bool = False
    """True if its records leave out weights and curves, for experiments with thousands of nets. No stage can start from
    it."""

    @property
    def description(self) -> str:
        """The stage in words, for pages."""
        start = "from fresh weights" if self.after is None else f"from {self.after}'s weights"
        task = "" if self.task == "A" else f" on task {self.task}"
        trained = f"{self.network} trained" if self.network else "trained"
        return f"{trained} {start}{task}{'' if self.regularised else ' without regulariser'}"


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished stage, ready to be measured."""

    stage: Stage
    model: nn.Module
    """One network, or several by name in an ``nn.ModuleDict``."""
    task: Task
    seed: int
    variant: str
    device: torch.device
    folder: Path | None = None
    """The data folder; None: the default one."""
    history: Mapping[str, Tensor] = field(default_factory=dict)
    """Snapshots that ``Recipe.look`` took during training, by name, stacked; the first dimension is time."""
    tasks: Mapping[str, Task] = field(default_factory=dict)
    """All tasks of ``Experiment.data`` by name, on the CPU."""


@dataclass(frozen=True)
class Measured:
    """The measurements of a finished stage."""

    metrics: dict[str, float]
    tables: dict[str, Any] = field(default_factory=dict)
    """Anything that JSON can represent."""
    arrays: dict[str, Tensor] = field(default_factory=dict)
    """Small tensors for figures."""

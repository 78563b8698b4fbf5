"""What a trainer is given: what is trained on what, and how it is run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from racecar_lab.config import Config
from racecar_lab.experiment import Task
from racecar_lab.training.objective import Objective
from racecar_lab.training.optimiser import fading
from racecar_lab.training.recipe import Batch, Recipe, Turn
from racecar_lab.training.variants import VARIANTS, Regularised, Variant, regularise

Report = Callable[[int, int, str], None]
"""(steps done, steps in all, what to show) → None."""


@dataclass(frozen=True)
class TrainingOptions:
    """How a stage is run; none of it changes what comes out, but for rounding."""

    device: str = "cpu"
    compile: bool = False
    graphs: bool = False
    """On a GPU: replay a step's kernels as CUDA graphs, which helps nets that wait for their launches."""
    interval: float = 60.0
    """Seconds between checkpoints."""
    resume: bool = True
    """Go on from a checkpoint if there is one; else start the stage anew."""
    report: Report | None = None
    scalars: Any = None
    """A TensorBoard writer."""


@dataclass(frozen=True, eq=False)
class Training:
    """One stage of one job: all that decides what comes out of it."""

    model: nn.Module
    """With its first weights: one network, or several by name in an ``nn.ModuleDict``."""
    task: Task
    config: Config
    recipe: Recipe = field(default_factory=Recipe)
    name: str = "A"
    """Of the stage; with the seed it decides about all that is random."""
    seed: int = 0
    epochs: int = 1
    variant: Variant = VARIANTS["Std"]
    coefficient: float = 0.0
    """Of the variant, whatever it means there."""
    reverse: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``Racecar``."""
    orthogonality: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    """Of its result."""

    @property
    def strength(self) -> float:
        """What the regulariser is multiplied by."""
        return self.coefficient if self.variant.kind in ("reverse", "orthogonality") else 0.0

    def left(self, step: int, total: int) -> float:
        """What of it is left in a step of ``total``."""
        return self.variant.left(step / total) * (fading(step, total) if self.recipe.fade else 1.0)

    @property
    def decay(self) -> float:
        """Weight decay: the optimiser's, and that of the variant WD on top."""
        return self.config.weight_decay + (self.coefficient if self.variant.kind == "decay" else 0.0)

    @property
    def networks(self) -> dict[str, nn.Module]:
        """By name; one alone has none."""
        return by_name(self.model)

    def objective(self, turn: Turn) -> Objective:
        """What a turn minimises, on the device that the model is on."""
        return Objective(turn, self._regularised(turn), self.networks)

    def _regularised(self, turn: Turn) -> Regularised:
        network = self.networks[turn.network]
        if not turn.regularised or self.variant.kind not in ("reverse", "orthogonality"):
            return Regularised(network)
        example = self._example(turn) if self.variant.kind == "reverse" else ()
        reverse = {**self.reverse, **turn.reverse}
        return regularise(network, self.variant, example, reverse, self.orthogonality, self.config.every)

    def _example(self, turn: Turn) -> tuple[Tensor, ...]:
        """What the network of a turn is called with: seen in copies of all networks, which alone are changed."""
        train, device = self.task.train, next(self.model.parameters()).device
        some = slice(min(len(train), max(2, self.config.batch or 64)))
        x = train.x[some].to(device)
        if not self.recipe.turns:
            return (x,)
        seen: list[tuple[Tensor, ...]] = []
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            networks = by_name(copy.deepcopy(self.model))
            latent = torch.randn(len(x), *turn.latent, device=device) if turn.latent else None

            def call(*inputs: Tensor) -> Tensor:
                seen.append(tuple(one.detach() for one in inputs))
                return networks[turn.network](*inputs)

            turn.apply(call, Batch(x, train.y[some].to(device), latent), networks, seen)
        return seen[0]


def by_name(model: nn.Module) -> dict[str, nn.Module]:
    """The networks that a model consists of; one alone has no name."""
    return dict(model.items()) if isinstance(model, nn.ModuleDict) else {"": model}

"""The description of a training: a model, data, a recipe and settings; and the options with which it is run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from racecar_lab.config import Config
from racecar_lab.task import Task
from racecar_lab.training.objective import Objective
from racecar_lab.training.optimiser import fading
from racecar_lab.training.recipe import Batch, Recipe, Turn
from racecar_lab.training.variants import VARIANTS, Regularised, Variant, regularise

Report = Callable[[int, int, str], None]
"""(steps done, steps in all, message) → None: shows the progress."""
IN_LOSS = ("reverse", "orthogonality")
"""Kinds of variants that add a regulariser to the loss."""


@dataclass(frozen=True)
class TrainingOptions:
    """Options with which a stage is run; results do not depend on them, except for rounding."""

    device: str = "cpu"
    compile: bool = False
    graphs: bool = False
    """On a GPU: replay each step as a CUDA graph, for small nets, which otherwise wait for kernel launches."""
    interval: float = 60.0
    """Seconds between checkpoints."""
    resume: bool = True
    """Continue from a checkpoint if there is one; otherwise the stage starts anew."""
    report: Report | None = None
    scalars: Any = None
    """A TensorBoard writer."""


@dataclass(frozen=True, eq=False)
class Training:
    """One stage of one job: all that its result depends on."""

    model: nn.Module
    """One network with its initial weights, or several by name in an ``nn.ModuleDict``."""
    task: Task
    config: Config
    recipe: Recipe = field(default_factory=Recipe)
    _: KW_ONLY
    name: str = "A"
    """Name of the stage. All random numbers are drawn from it and the seed."""
    seed: int = 0
    epochs: int = 1
    variant: Variant = VARIANTS["Std"]
    weight: float = 0.0
    """λ; ``variant.meaning`` says what it is."""
    reverse: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``Racecar``."""
    orthogonality: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``srip``."""
    id: str = ""
    """Identity of its record."""

    @property
    def regulariser_weight(self) -> float:
        """The multiplier of the regulariser in the loss; 0 for variants without one."""
        return self.weight if self.variant.kind in IN_LOSS else 0.0

    def schedule_factor(self, step: int, total: int) -> float:
        """The multiplier of the regulariser at this step of ``total``, beside ``regulariser_weight``."""
        factor = self.variant.schedule_factor(step / total)
        return factor * fading(step, total) if self.recipe.fade else factor

    @property
    def weight_decay(self) -> float:
        """Weight decay: the optimiser's plus that of the variant WD."""
        return self.config.weight_decay + (self.weight if self.variant.kind == "decay" else 0.0)

    @property
    def networks(self) -> dict[str, nn.Module]:
        """The networks of the model by name; the name of a single network is empty."""
        return networks_of(self.model)

    def objective(self, turn: Turn) -> Objective:
        """The objective of a turn, on the device of the model."""
        return Objective(turn, self._regularised(turn), self.networks)

    def _regularised(self, turn: Turn) -> Regularised:
        network = self.networks[turn.network]
        if not turn.regularised or self.variant.kind not in IN_LOSS:
            return Regularised(network)
        example = self._example(turn) if self.variant.kind == "reverse" else ()
        reverse = {**self.reverse, **turn.reverse}
        return regularise(network, self.variant, example, reverse, self.orthogonality, self.config.every)

    def _example(self, turn: Turn) -> tuple[Tensor, ...]:
        """Inputs of a turn's network, to plan its reverse pass. With turns they are those of the network's first call
        in the turn's loss, computed on copies of all networks, so that no buffer changes."""
        train, device = self.task.train, next(self.model.parameters()).device
        first = slice(min(len(train), max(2, self.config.batch or 64)))
        x = train.x[first].to(device)
        if not self.recipe.turns:
            return (x,)
        calls: list[tuple[Tensor, ...]] = []
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            networks = networks_of(copy.deepcopy(self.model))
            latent = torch.randn(len(x), *turn.latent, device=device) if turn.latent else None

            def call(*inputs: Tensor) -> Tensor:
                calls.append(tuple(tensor.detach() for tensor in inputs))
                return networks[turn.network](*inputs)

            turn.apply(call, Batch(x, train.y[first].to(device), latent), networks, calls)
        return calls[0]


def networks_of(model: nn.Module) -> dict[str, nn.Module]:
    """The networks of a model by name; the name of a single network is empty."""
    return dict(model.items()) if isinstance(model, nn.ModuleDict) else {"": model}

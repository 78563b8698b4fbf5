"""The description of a training: a model, data, a recipe and settings; and the options with which it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

from torch import nn

from racecar_lab.config import Config
from racecar_lab.task import Task
from racecar_lab.training import rng
from racecar_lab.training.optimiser import learning_rate
from racecar_lab.training.recipe import Recipe, Turn
from racecar_lab.training.variants import IN_LOSS, VARIANTS, OwnVariant, Variant

Report = Callable[[int, int, str], None]
"""A function that shows the progress of a training: (steps done, steps in all, message) → None."""


@dataclass(frozen=True)
class TrainingOptions:
    """Options with which a stage is run; results do not depend on them, except for rounding."""

    device: str = "cpu"
    compile: bool = False
    graphs: bool = False
    """True if each step is replayed as a CUDA graph, on a GPU: for small nets, which otherwise wait for kernel
    launches."""
    interval: float = 60.0
    """Number of seconds between checkpoints."""
    resume: bool = True
    """True if a stage continues from its checkpoint, where there is one; False: it starts anew."""
    report: Report | None = None
    scalars: Any = None
    """The TensorBoard writer that gets the curves; None: no writer gets them."""


@dataclass(frozen=True, eq=False)
class Training:
    """One training, which is one stage of a job: all that its result depends on."""

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
    """λ of the variant: the weight of its regulariser, or what ``variant.meaning`` says, such as a weight decay."""
    reverse: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``Racecar``, for the variants RR, lRR and RR1."""
    orthogonality: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the regulariser ``srip``, for the variants Ort and OrtB."""
    id: str = ""
    """The id of the record that keeps the training's result."""

    @property
    def networks(self) -> dict[str, nn.Module]:
        """The networks of the model by name; the name of a single network is empty."""
        return networks_of(self.model)

    @cached_property
    def steps_per_epoch(self) -> int:
        """Number of batches in an epoch."""
        return rng.steps_per_epoch(len(self.task.train), self.config.batch)

    @cached_property
    def steps(self) -> int:
        """Number of batches in the whole training."""
        return self.steps_per_epoch * self.epochs

    def trained(self, turn: Turn) -> list[nn.Module]:
        """The networks that a turn trains: the turn's, and those of the variant's own regulariser."""
        names = self.variant.networks if isinstance(self.variant, OwnVariant) and turn.regularised else ()
        return [self.networks[name] for name in (turn.network, *names)]

    def regulariser_weight(self, turn: Turn) -> float:
        """λ of the regulariser in the loss of a turn; 0 if it has none."""
        return self.weight if turn.regularised and self.variant.kind in IN_LOSS else 0.0

    def weight_factor(self, step: int) -> float:
        """The factor by which λ of the regulariser is multiplied at a step: 1, unless λ follows a schedule or fades to
        0."""
        factor = self.variant.schedule_factor(step / self.steps)
        return factor * (1 - step / self.steps) if self.recipe.fade else factor

    def weight_decay(self, turn: Turn) -> float:
        """Weight decay in a turn: the optimiser's, plus that of the variant WD if the turn is regularised."""
        decay = self.weight if turn.regularised and self.variant.kind == "decay" else 0.0
        return self.config.weight_decay + decay

    def learning_rate(self, turn: Turn, step: int) -> float:
        """The learning rate of a turn at a step, counted from 0."""
        return learning_rate(turn.lr or self.config.lr, turn.schedule or self.config.schedule, step, self.steps)


def networks_of(model: nn.Module) -> dict[str, nn.Module]:
    """The networks of a model by name; the name of a single network is empty."""
    return dict(model.items()) if isinstance(model, nn.ModuleDict) else {"": model}

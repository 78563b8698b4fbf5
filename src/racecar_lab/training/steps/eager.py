"""A step of one turn, operation by operation: what the other kinds of steps are variations of."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from racecar_lab.training import distributed
from racecar_lab.training.batches import Batches, Drawn
from racecar_lab.training.objective import Objective
from racecar_lab.training.optimiser import load_optimiser, make_optimiser, set_step_size, step_size
from racecar_lab.training.spec import Training, TrainingOptions


class Eager:
    """Changes the weights of one network."""

    fused = False
    """Whether the optimiser is one kernel, on a CPU, too."""

    def __init__(self, objective: Objective, training: Training, batches: Batches, options: TrainingOptions) -> None:
        self.objective, self.batches, self.options = objective, batches, options
        self.config, self.turn, self.left = training.config, objective.turn, training.left
        self.total = batches.per_epoch * training.epochs
        regularised = self.turn.regularised
        plain = 0.0, self.config.weight_decay
        self.coefficient, decay = (training.strength, training.decay) if regularised else plain
        self.parameters = list(objective.own.model.parameters())
        self.optimiser = make_optimiser(self.parameters, self.config, decay, self.fused, self.turn.betas)
        self.device = batches.device
        half = self.config.precision == "float16" and self.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=half)
        self.call: nn.Module = objective

    def start(self) -> None:
        """Before the first step, once the weights are there."""
        self.call = distributed.wrap(self.objective)

    def __call__(self, cycle: int, drawn: Drawn) -> Tensor:
        """The step on batch number ``cycle``; returns the loss of the task and the regulariser, (2,)."""
        self.begin(cycle)
        return self.whole(drawn, self.numbers(cycle))

    def begin(self, cycle: int) -> bool:
        """Whether the regulariser is on in this step."""
        return self.objective.own.begin(cycle)

    def numbers(self, cycle: int) -> list[float]:
        """What changes from step to step beside the batch: step size and coefficient."""
        left = self.coefficient * self.left(cycle, self.total)
        return [step_size(self.config, cycle, self.total, self.turn.lr, self.turn.schedule), left]

    def whole(self, drawn: Drawn, numbers: Any) -> Tensor:
        """A step in which nothing but numbers changes from time to time."""
        chosen, noise, moves, latent = drawn
        set_step_size(self.optimiser, numbers[0])
        x, y = self.batches.take(chosen, moves)
        losses = self.gradients(x, y, noise, None if latent is None else distributed.share(latent), numbers[1])
        self.update()
        return losses

    def gradients(
        self, x: Tensor, y: Tensor, noise: Tensor | None, latent: Tensor | None, coefficient: float | Tensor
    ) -> Tensor:
        """Leaves the gradients with the parameters; returns the two losses."""
        with self._precision():
            task, regulariser = self.call(x, y, noise, latent)
        total = task if self.coefficient == 0 else task + coefficient * regulariser
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(total).backward()
        return torch.stack((task.detach().float(), regulariser.detach().float()))

    def update(self) -> None:
        """Change the weights by their gradients."""
        if self.config.clip:
            self.scaler.unscale_(self.optimiser)
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip)
        self.scaler.step(self.optimiser)
        self.scaler.update()

    def _precision(self) -> AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, getattr(torch, self.config.precision))

    def state(self) -> dict[str, Any]:
        return {"optimiser": self.optimiser.state_dict(), "scaler": self.scaler.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        load_optimiser(self.optimiser, state["optimiser"])
        self.scaler.load_state_dict(state["scaler"])

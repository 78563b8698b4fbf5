"""A training step of one turn, operation by operation, or with its losses compiled. Other kinds of steps vary it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from racecar_lab.training import distributed
from racecar_lab.training.batches import Batches, Draws
from racecar_lab.training.objective import Objective
from racecar_lab.training.optimiser import load_optimiser, make_optimiser, set_learning_rates
from racecar_lab.training.spec import Training, TrainingOptions


class Eager:
    """A step that changes the weights of one network, with an optimiser of its own.

    Args:
        objective: the turn's objective, on the device.
    """

    fused = False
    """True if the optimiser updates all parameters in one kernel on a CPU, too."""

    def __init__(self, objective: Objective, training: Training, batches: Batches, options: TrainingOptions) -> None:
        self.objective, self.training, self.batches = objective, training, batches
        self.config, self.turn, self.device = training.config, objective.turn, batches.device
        self.regulariser_weight = training.regulariser_weight(self.turn)
        self.parameters = list(objective.parameters())
        group = self.parameters, training.weight_decay(self.turn)
        self.optimiser = make_optimiser([group], self.config, self.turn.betas, self.fused)
        float16 = self.config.precision == "float16" and self.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=float16)
        self.call = distributed.wrap(objective)

    def __call__(self, step: int, draws: Draws) -> Tensor:
        """Do a training step, given its number from the start of the training, and its random tensors. Returns the
        task's loss and the regulariser, (2,)."""
        return self.run(self.objective.is_on(step), draws, self.hyperparameters(step))

    def hyperparameters(self, step: int) -> list[float]:
        """The two numbers of a step that may change from step to step: the learning rate, and the weight of the
        regulariser."""
        weight = self.regulariser_weight * self.training.weight_factor(step)
        return [self.training.learning_rate(self.turn, step), weight]

    def run(self, on: bool, draws: Draws, hyperparameters: Any) -> Tensor:
        """Do a training step, given its random tensors and its hyperparameters (a list or a tensor): the learning rate,
        and the weight of the regulariser. Returns the task's loss and the regulariser, (2,).

        Args:
            on: whether the step has the regulariser.
        """
        set_learning_rates(self.optimiser, hyperparameters[:1])
        x, y = self.batches.take(draws)
        latent = None if draws.latent is None else distributed.share(draws.latent)
        losses = self.backward((x, y, draws.noise, latent, on), hyperparameters[1])
        self.update_weights()
        return losses

    def backward(self, batch: tuple[Any, ...], weight: Any) -> Tensor:
        """Compute the gradients of the parameters. Returns the task's loss and the regulariser, (2,).

        Args:
            batch: arguments of ``Objective``.
            weight: the multiplier of the regulariser, a number or a tensor.
        """
        with self._precision():
            task, regulariser = self.call(*batch)
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(self.total(task, regulariser, weight)).backward()
        return torch.stack((task.detach().float(), regulariser.detach().float()))

    def total(self, task: Tensor, regulariser: Tensor, weight: Any) -> Tensor:
        """The loss that is minimised: the task's plus the regulariser times its weight."""
        return task if self.regulariser_weight == 0 else task + weight * regulariser

    def update_weights(self) -> None:
        """Take a step of the optimiser, with gradients clipped as configured."""
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
        """The state of the optimiser and of the loss scaling, for a checkpoint."""
        return {"optimiser": self.optimiser.state_dict(), "scaler": self.scaler.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue with the optimiser and the loss scaling of a checkpoint, as ``state`` returned them."""
        load_optimiser(self.optimiser, state["optimiser"])
        self.scaler.load_state_dict(state["scaler"])


class Compiled(Eager):
    """A step with its losses compiled by torch.compile, which takes minutes at first and pays for large nets. With
    ``options.graphs`` torch also makes CUDA graphs of it."""

    def __init__(self, objective: Objective, training: Training, batches: Batches, options: TrainingOptions) -> None:
        super().__init__(objective, training, batches, options)
        self._graphs = options.graphs and self.device.type == "cuda"
        mode = "reduce-overhead" if self._graphs else None
        self.call = torch.compile(self.call, mode=mode)  # type: ignore[assignment]

    def backward(self, batch: tuple[Any, ...], weight: Any) -> Tensor:
        if self._graphs:  # tells torch that the tensors of the step before may be overwritten
            torch.compiler.cudagraph_mark_step_begin()
        return super().backward(batch, weight)

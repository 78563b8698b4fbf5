"""A training step of one turn, operation by operation, or with its losses compiled. Other kinds of steps vary it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from racecar_lab.training import distributed
from racecar_lab.training.batches import Batches, Drawn
from racecar_lab.training.objective import Objective
from racecar_lab.training.optimiser import learning_rate, load_optimiser, make_optimiser, set_learning_rate
from racecar_lab.training.spec import Training, TrainingOptions


class Eager:
    """A step that changes the weights of one network, with an optimiser of its own.

    Args:
        objective: the turn's objective, on the device.
    """

    fused = False
    """True if the optimiser updates all parameters in one kernel on a CPU, too."""

    def __init__(self, objective: Objective, training: Training, batches: Batches, options: TrainingOptions) -> None:
        self.objective, self.batches, self.options = objective, batches, options
        self.config, self.turn = training.config, objective.turn
        self.schedule_factor, self.total = training.schedule_factor, batches.per_epoch * training.epochs
        self.regulariser_weight, weight_decay = 0.0, self.config.weight_decay
        if self.turn.regularised:
            self.regulariser_weight, weight_decay = training.regulariser_weight, training.weight_decay
        self.parameters = list(objective.regularised.model.parameters())
        self.optimiser = make_optimiser(self.parameters, self.config, weight_decay, self.fused, self.turn.betas)
        self.device = batches.device
        float16 = self.config.precision == "float16" and self.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=float16)
        self.call: nn.Module = objective

    def start(self) -> None:
        """Prepare for the first step, after the weights are loaded."""
        self.call = distributed.wrap(self.objective)

    def __call__(self, batch_index: int, drawn: Drawn) -> Tensor:
        """Do the step on a batch, counted from the start of the training. Returns the task's loss and the regulariser,
        (2,)."""
        self.begin(batch_index)
        return self.run(drawn, self.hyperparameters(batch_index))

    def begin(self, batch_index: int) -> bool:
        """Prepare for a step. Returns whether the regulariser is on in it."""
        return self.objective.regularised.begin(batch_index)

    def hyperparameters(self, batch_index: int) -> list[float]:
        """The numbers that change from step to step: the learning rate, and the weight of the regulariser."""
        lr = learning_rate(self.config, batch_index, self.total, self.turn.lr, self.turn.schedule)
        return [lr, self.regulariser_weight * self.schedule_factor(batch_index, self.total)]

    def run(self, drawn: Drawn, hyperparameters: Any) -> Tensor:
        """Do a step, given its random tensors and its hyperparameters (a list or a tensor); the losses, (2,)."""
        chosen, noise, moves, latent = drawn
        set_learning_rate(self.optimiser, hyperparameters[0])
        x, y = self.batches.take(chosen, moves)
        latent = None if latent is None else distributed.share(latent)
        losses = self.backward(x, y, noise, latent, hyperparameters[1])
        self.update_weights()
        return losses

    def backward(self, x: Tensor, y: Tensor, noise: Tensor | None, latent: Tensor | None, weight: Any) -> Tensor:
        """Compute the gradients of the parameters; returns the task's loss and the regulariser, (2,).

        Args:
            x, y, noise, latent: arguments of ``Objective``.
            weight: the multiplier of the regulariser, a number or a tensor.
        """
        with self._precision():
            task, regulariser = self.call(x, y, noise, latent)
        total = task if self.regulariser_weight == 0 else task + weight * regulariser
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(total).backward()
        return torch.stack((task.detach().float(), regulariser.detach().float()))

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
        """The state for a checkpoint."""
        return {"optimiser": self.optimiser.state_dict(), "scaler": self.scaler.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from the state of a checkpoint."""
        load_optimiser(self.optimiser, state["optimiser"])
        self.scaler.load_state_dict(state["scaler"])


class Compiled(Eager):
    """A step with its losses compiled by torch.compile, which takes minutes at first and pays for large nets. With
    ``options.graphs`` torch also makes CUDA graphs of it."""

    def start(self) -> None:
        self._graphs = self.options.graphs and self.device.type == "cuda"
        mode = "reduce-overhead" if self._graphs else None
        self.call = torch.compile(distributed.wrap(self.objective), mode=mode)  # type: ignore[assignment]

    def backward(self, *args: Any) -> Tensor:
        if self._graphs:  # tells torch that the tensors of the step before may be overwritten
            torch.compiler.cudagraph_mark_step_begin()
        return super().backward(*args)

"""A training step of E nets as one batched net: every parameter and every buffer has a first dimension E."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from racecar.support.interrupts import deferred
from racecar_lab.training.batches import Drawn, StackedBatches
from racecar_lab.training.nets import Nets
from racecar_lab.training.optimiser import learning_rate, load_optimiser, make_optimiser, set_learning_rate
from racecar_lab.training.spec import Training, TrainingOptions
from racecar_lab.training.steps.cuda_graph import CudaGraph
from racecar_lab.training.steps.recorded import record

Tensors = dict[str, Tensor]
RECORDED = 50
"""Number of steps from which on they are recorded; recording takes as long as tens of them. A recording saves 48 % of a
step of 5 nets of the experiment information with RR, and 20 % of a step of 60 (one CPU thread)."""


class Vmapped(Nets):
    """E nets trained as one by ``torch.func.vmap``. The module of the first net serves for all of them.

    Args:
        trainings: of one configuration, except for learning rate, weight decay, λ and seed. Those with the
            same learning rate and weight decay follow one another.
    """

    turns = ("",)
    save_at_end = True

    def __init__(self, trainings: Sequence[Training], options: TrainingOptions) -> None:
        first, self.trainings, self.device = trainings[0], trainings, torch.device(options.device)
        states = [training.model.state_dict() for training in trainings]
        self.model = copy.deepcopy(first.model).to(self.device)
        (turn,) = first.recipe.all_turns()
        self.objective = replace(first, model=self.model).objective(turn)
        self.batches = StackedBatches(trainings, self.objective, self.device)
        self.tasks, self.per_epoch = self.batches.tasks, self.batches.per_epoch
        stacked = {name: torch.stack([state[name].detach() for state in states]).to(self.device) for name in states[0]}
        self.parameters = {name: stacked[name] for name, _ in self.model.named_parameters()}
        self.buffers = {name: stacked[name] for name, _ in self.model.named_buffers()}
        self.regulariser_weights = torch.tensor([one.regulariser_weight for one in trainings], device=self.device)
        self.config, self.schedule_factor = first.config, first.schedule_factor
        self.total = self.per_epoch * first.epochs
        self.groups = self._parameter_groups()
        self.optimisers = [
            make_optimiser(tensors, trainings[start].config, trainings[start].weight_decay, betas=turn.betas)
            for start, tensors in self.groups
        ]
        recorded = not options.graphs and self.total >= RECORDED
        self._recorded: dict[bool, Callable[..., Any]] | None = {} if recorded else None
        self.step: Callable[[int, Drawn], Tensor] = CudaGraph(self) if options.graphs else self._step
        self._lr, self._schedule = turn.lr, turn.schedule

    def _parameter_groups(self) -> list[tuple[int, list[Tensor]]]:
        """The nets of each learning rate and weight decay: index of the first one, and views of their parameters."""
        keys = [(training.config.lr, training.weight_decay) for training in self.trainings]
        starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
        return [
            (start, [tensor[start:end] for tensor in self.parameters.values()])
            for start, end in zip(starts, [*starts[1:], len(keys)], strict=True)
        ]

    def draw(self, epoch: int) -> list[Drawn]:
        return self.batches.draw(epoch)

    def train_step(self, turn: int, batch_index: int, drawn: Drawn) -> Tensor:
        with deferred():
            return self.step(batch_index, drawn)

    def _step(self, batch_index: int, drawn: Drawn) -> Tensor:
        self.begin(batch_index)
        return self.run(drawn, self.hyperparameters(batch_index))

    def begin(self, batch_index: int) -> bool:
        """Prepare for a step. Returns whether the regulariser is on in it."""
        self._regulariser_on = self.objective.regularised.begin(batch_index)
        return self._regulariser_on

    def hyperparameters(self, batch_index: int) -> list[float]:
        """The learning rate of each group, and the multiplier of all regulariser weights."""
        configs = [self.trainings[start].config for start, _ in self.groups]
        lrs = [learning_rate(config, batch_index, self.total, self._lr, self._schedule) for config in configs]
        return [*lrs, self.schedule_factor(batch_index, self.total)]

    def run(self, drawn: Drawn, hyperparameters: Any) -> Tensor:
        """Do a step of all nets, given its random tensors and hyperparameters (a list or a tensor); the losses,
        (E, 2)."""
        chosen, noise, moves, latent = drawn
        x, y = self.batches.take(chosen, moves)
        weights = self.regulariser_weights * hyperparameters[-1]
        gradients, (_, (losses, buffers)) = self._gradients(self.parameters, self.buffers, x, y, weights, noise, latent)
        for name, buffer in self.buffers.items():
            buffer.copy_(buffers[name])
        self._update_weights(gradients, hyperparameters)
        return losses

    def _gradients(self, *args: Any) -> Any:
        """Gradients and losses of all nets. Without CUDA graphs, and if there are many steps, the operations are
        recorded once, with the regulariser on and with it off."""
        function = vmap(grad_and_value(self._losses, has_aux=True))
        if self._recorded is None:
            return function(*args)
        if self._regulariser_on not in self._recorded:
            self._recorded[self._regulariser_on] = record(function, *args)
        return self._recorded[self._regulariser_on](*args)

    def _losses(
        self,
        parameters: Tensors,
        buffers: Tensors,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        noise: Tensor,
        latent: Tensor,
    ) -> Any:
        """The minimised loss of one net, with its two parts, (2,), and the buffers after the forward pass.

        Args:
            weight: the multiplier of the regulariser, ().
            noise, latent: arguments of ``Objective``; empty for None.
        """
        buffers = {name: buffer.clone() for name, buffer in buffers.items()}  # the net changes them in place
        tensors = {f"{self.objective.prefix}{name}": tensor for name, tensor in (parameters | buffers).items()}
        batch = x, y, noise if noise.numel() else None, latent if latent.numel() else None
        task, regulariser = functional_call(self.objective, tensors, batch)
        return task + weight * regulariser, (torch.stack((task, regulariser)).detach(), buffers)

    def _update_weights(self, gradients: Tensors, hyperparameters: Any) -> None:
        if self.config.clip:  # each net by the norm of its own gradient
            square = sum(g.flatten(1).square().sum(1) for g in gradients.values())
            factor = (self.config.clip / (torch.as_tensor(square).sqrt() + 1e-6)).clamp(max=1.0)
            gradients = {n: g * factor.view(-1, *(1,) * (g.dim() - 1)) for n, g in gradients.items()}
        for i, ((start, tensors), optimiser) in enumerate(zip(self.groups, self.optimisers, strict=True)):
            for tensor, gradient in zip(tensors, gradients.values(), strict=True):
                tensor.grad = gradient[start : start + len(tensor)].contiguous()  # fused optimisers need it
            set_learning_rate(optimiser, hyperparameters[i])
            optimiser.step()

    def train(self) -> None:
        self.objective.train()

    def model_of(self, i: int) -> nn.Module:
        with torch.no_grad():
            for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers()):
                tensor.copy_((self.parameters | self.buffers)[name][i])
        return self.model

    def finite(self) -> list[bool]:
        return torch.stack([tensor.isfinite().flatten(1).all(1) for tensor in self.parameters.values()]).all(0).tolist()

    def end(self) -> None:
        self.step = self._step  # CUDA graphs hold memory
        self.model.eval()

    def state(self) -> dict[str, Any]:
        optimisers = [optimiser.state_dict() for optimiser in self.optimisers]
        return {"parameters": self.parameters, "buffers": self.buffers, "optimisers": optimisers}

    def load(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for tensors, saved in ((self.parameters, state["parameters"]), (self.buffers, state["buffers"])):
                for name, tensor in tensors.items():
                    tensor.copy_(saved[name])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            load_optimiser(optimiser, saved)

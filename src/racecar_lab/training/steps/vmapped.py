"""A training step of E nets as one batched net: every parameter and every buffer has a first dimension E."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from racecar.support.interrupts import deferred
from racecar_lab.training.batches import Draws, StackedBatches
from racecar_lab.training.nets import Nets
from racecar_lab.training.objective import Objective
from racecar_lab.training.optimiser import load_optimiser, make_optimiser, set_learning_rates
from racecar_lab.training.spec import Training, TrainingOptions
from racecar_lab.training.steps.cuda_graph import CudaGraph
from racecar_lab.training.steps.recorded import record

Tensors = dict[str, Tensor]
RECORDED = 50
"""Smallest number of steps of a training for which a step is recorded once and then repeated: recording takes as long
as tens of steps. A recording saves 48 % of a step of 5 nets of the experiment information with RR, and 20 % of a step
of 60 (one CPU thread)."""


class Vmapped(Nets):
    """E nets trained as one by ``torch.func.vmap``. The module of the first net serves for all of them.

    Args:
        trainings: of one configuration, except for learning rate, weight decay, λ and seed. Those with the
            same learning rate and weight decay follow one another.
    """

    batches: StackedBatches
    save_at_end = True

    def __init__(self, trainings: Sequence[Training], options: TrainingOptions) -> None:
        super().__init__(trainings, options)
        first, (self.turn,) = trainings[0], self.turns
        self.model, self.config = copy.deepcopy(first.model).to(self.device), first.config
        self.objective = Objective(replace(first, model=self.model), self.turn)
        self.batches = StackedBatches(trainings, self.objective, self.device)
        self.parameters = self._stack([dict(training.model.named_parameters()) for training in trainings])
        self.buffers = self._stack([dict(training.model.named_buffers()) for training in trainings])
        self.regulariser_weights = torch.tensor(
            [training.regulariser_weight(self.turn) for training in trainings], device=self.device
        )
        names = {tensor: name for name, tensor in _named(self.objective).items()}
        self._names = {name: names[tensor] for name, tensor in _named(self.model).items()}
        """Name of a tensor in the model → its name in the objective."""
        self.groups = self._optimiser_groups()
        parts = [[tensor[nets] for tensor in self.parameters.values()] for nets in self.groups]
        decays = [trainings[nets.start].weight_decay(self.turn) for nets in self.groups]
        self.optimiser = make_optimiser(zip(parts, decays, strict=True), self.config, self.turn.betas)
        self._recorded: dict[bool, Callable[..., Any]] = {}
        self.step: Callable[[int, Draws], Tensor] = CudaGraph(self) if options.graphs else self._step

    def _stack(self, nets: Sequence[Mapping[str, Tensor]]) -> Tensors:
        """The nets' parameters, or their buffers, by name, stacked: each gets a first dimension E."""
        return {name: torch.stack([net[name].detach() for net in nets]).to(self.device) for name in nets[0]}

    def _optimiser_groups(self) -> list[slice]:
        """The groups of nets with equal learning rate and weight decay, as slices; each is a group of the optimiser."""
        keys = [(training.config.lr, training.weight_decay(self.turn)) for training in self.trainings]
        starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
        return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(keys)], strict=True)]

    def train_step(self, turn: int, step: int, draws: Draws) -> Tensor:
        with deferred():
            return self.step(step, draws)

    def _step(self, step: int, draws: Draws) -> Tensor:
        return self.run(self.objective.is_on(step), draws, self.hyperparameters(step))

    def hyperparameters(self, step: int) -> list[float]:
        """The numbers of a step that may change from step to step: the learning rate of each group of nets, and the
        factor by which all regulariser weights are multiplied."""
        firsts = [self.trainings[nets.start] for nets in self.groups]
        return [*(first.learning_rate(self.turn, step) for first in firsts), firsts[0].weight_factor(step)]

    def run(self, on: bool, draws: Draws, hyperparameters: Any) -> Tensor:
        """Do a training step of all nets, given its random tensors and its hyperparameters (a list or a tensor): the
        learning rate of each group of nets, and the factor of all regulariser weights. Returns the task's loss and the
        regulariser of each net, (E, 2).

        Args:
            on: whether the step has the regulariser.
        """
        weights = self.regulariser_weights * hyperparameters[-1]
        batch = *self.batches.take(draws), draws.noise, draws.latent
        gradients, (_, (losses, buffers)) = self._gradients(on, self.parameters, self.buffers, weights, *batch)
        for name, buffer in self.buffers.items():
            buffer.copy_(buffers[name])
        self._update_weights(gradients, hyperparameters)
        return losses

    def _gradients(self, on: bool, *args: Any) -> Any:
        """Gradients and losses of all nets in a step. Without CUDA graphs, and if there are many steps, the operations
        are recorded once, with the regulariser on and with it off."""
        function = vmap(
            grad_and_value(partial(self._losses, on), has_aux=True),
            in_dims=tuple(None if arg is None else 0 for arg in args),
        )
        if self.options.graphs or self.trainings[0].steps < RECORDED:
            return function(*args)
        if on not in self._recorded:
            self._recorded[on] = record(function, *args)
        return self._recorded[on](*args)

    def _losses(self, on: bool, parameters: Tensors, buffers: Tensors, weight: Tensor, *batch: Tensor | None) -> Any:
        """The minimised loss of one net; the task's loss and the regulariser, (2,); the buffers after the forward pass.

        Args:
            weight: the weight of the regulariser, ().
            batch: arguments of ``Objective``.
        """
        buffers = {name: buffer.clone() for name, buffer in buffers.items()}  # the net changes them in place
        tensors = {self._names[name]: tensor for name, tensor in (parameters | buffers).items()}
        task, regulariser = functional_call(self.objective, tensors, (*batch, on))
        return task + weight * regulariser, (torch.stack((task, regulariser)).detach(), buffers)

    def _update_weights(self, gradients: Tensors, hyperparameters: Any) -> None:
        if self.config.clip:  # each net by the norm of its own gradient
            square = sum(g.flatten(1).square().sum(1) for g in gradients.values())
            factor = (self.config.clip / (torch.as_tensor(square).sqrt() + 1e-6)).clamp(max=1.0)
            gradients = {n: g * factor.view(-1, *(1,) * (g.dim() - 1)) for n, g in gradients.items()}
        for nets, group in zip(self.groups, self.optimiser.param_groups, strict=True):
            for parameter, gradient in zip(group["params"], gradients.values(), strict=True):
                parameter.grad = gradient[nets].contiguous()  # fused optimisers need it
        set_learning_rates(self.optimiser, hyperparameters[:-1])
        self.optimiser.step()

    def train(self) -> None:
        self.objective.train()

    def model_of(self, i: int) -> nn.Module:
        with torch.no_grad():
            for name, tensor in _named(self.model).items():
                tensor.copy_((self.parameters | self.buffers)[name][i])
        return self.model

    def finite(self) -> list[bool]:
        return torch.stack([tensor.isfinite().flatten(1).all(1) for tensor in self.parameters.values()]).all(0).tolist()

    def end(self) -> None:
        self.step = self._step  # CUDA graphs hold memory
        self.model.eval()

    def state(self) -> dict[str, Any]:
        return {"tensors": self.parameters | self.buffers, "optimiser": self.optimiser.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for name, tensor in (self.parameters | self.buffers).items():
                tensor.copy_(state["tensors"][name])
        load_optimiser(self.optimiser, state["optimiser"])


def _named(module: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers of a module by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}

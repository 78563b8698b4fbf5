"""One step for E nets as one batched net: every parameter and every buffer has a first dimension E."""

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
from racecar_lab.training.optimiser import load_optimiser, make_optimiser, set_step_size, step_size
from racecar_lab.training.spec import Training, TrainingOptions
from racecar_lab.training.steps.cuda_graph import CudaGraph
from racecar_lab.training.steps.recorded import record

Tensors = dict[str, Tensor]
RECORDED = 50
"""Steps from which on a recording is worth its time: it takes as long as tens of them."""


class Vmapped(Nets):
    """E nets as one, through torch.func. The first net, on the device, is what all go through.

    Args:
        trainings: of one configuration, but for step size, weight decay, coefficient and seed; those of one step size
            and weight decay stand together.
    """

    turns = ("",)
    safe = True

    def __init__(self, trainings: Sequence[Training], options: TrainingOptions) -> None:
        first, self.trainings, self.device = trainings[0], trainings, torch.device(options.device)
        states = [one.model.state_dict() for one in trainings]
        self.model = copy.deepcopy(first.model).to(self.device)
        (turn,) = first.recipe.steps()
        self.objective = replace(first, model=self.model).objective(turn)
        self.batches = StackedBatches(trainings, self.objective, self.device)
        self.tasks, self.per_epoch = self.batches.tasks, self.batches.per_epoch
        stacked = {name: torch.stack([one[name].detach() for one in states]).to(self.device) for name in states[0]}
        self.parameters = {name: stacked[name] for name, _ in self.model.named_parameters()}
        self.buffers = {name: stacked[name] for name, _ in self.model.named_buffers()}
        self.coefficients = torch.tensor([one.strength for one in trainings], device=self.device)
        self.config, self.left, self.total = first.config, first.left, self.per_epoch * first.epochs
        self.parts = self._parts()
        self.optimisers = [
            make_optimiser(tensors, trainings[start].config, trainings[start].decay, betas=turn.betas)
            for start, tensors in self.parts
        ]
        recorded = not options.graphs and self.total >= RECORDED
        self._recorded: dict[bool, Callable[..., Any]] | None = {} if recorded else None
        self.step: Callable[[int, Drawn], Tensor] = CudaGraph(self) if options.graphs else self._step
        self._lr, self._schedule = turn.lr, turn.schedule

    def _parts(self) -> list[tuple[int, list[Tensor]]]:
        """Nets of one step size and weight decay stand together: where they start, and views of their parameters."""
        keys = [(one.config.lr, one.decay) for one in self.trainings]
        starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
        return [
            (start, [tensor[start:end] for tensor in self.parameters.values()])
            for start, end in zip(starts, [*starts[1:], len(keys)], strict=True)
        ]

    def draw(self, epoch: int) -> list[Drawn]:
        return self.batches.draw(epoch)

    def take(self, turn: int, cycle: int, drawn: Drawn) -> Tensor:
        with deferred():
            return self.step(cycle, drawn)

    def _step(self, cycle: int, drawn: Drawn) -> Tensor:
        self.begin(cycle)
        return self.whole(drawn, self.numbers(cycle))

    def begin(self, cycle: int) -> bool:
        """Whether the regulariser is on in this step."""
        self._on = self.objective.own.begin(cycle)
        return self._on

    def numbers(self, cycle: int) -> list[float]:
        """The step size of each part, and what coefficients are multiplied by."""
        configs = [self.trainings[start].config for start, _ in self.parts]
        sizes = [step_size(config, cycle, self.total, self._lr, self._schedule) for config in configs]
        return [*sizes, self.left(cycle, self.total)]

    def whole(self, drawn: Drawn, numbers: Any) -> Tensor:
        """A step of all nets, in which nothing but numbers changes from time to time; returns the losses (E, 2)."""
        chosen, noise, moves, latent = drawn
        x, y = self.batches.take(chosen, moves)
        args = self.parameters, self.buffers, x, y, self.coefficients * numbers[-1], noise, latent
        gradients, (_, (losses, buffers)) = self._gradients(*args)
        for name, buffer in self.buffers.items():
            buffer.copy_(buffers[name])
        self._update(gradients, numbers)
        return losses

    def _gradients(self, *args: Any) -> Any:
        """Gradients and losses of all nets. Where no CUDA graph repeats them, and steps are many, by operations that
        were recorded once, with the regulariser on and with it off: no Python per layer."""
        function = vmap(grad_and_value(self._losses, has_aux=True))
        if self._recorded is None:
            return function(*args)
        if self._on not in self._recorded:
            self._recorded[self._on] = record(function, *args)
        return self._recorded[self._on](*args)

    def _losses(self, parameters: Tensors, buffers: Tensors, x: Tensor, y: Tensor, c: Tensor, *random: Tensor) -> Any:
        """Of one net: what is minimised, its two parts, and the buffers afterwards; c is its coefficient."""
        buffers = {name: one.clone() for name, one in buffers.items()}  # the net changes them in place
        given = {f"{self.objective.where}{name}": value for name, value in (parameters | buffers).items()}
        noise, latent = (one if one.numel() else None for one in random)
        task, regulariser = functional_call(self.objective, given, (x, y, noise, latent))
        return task + c * regulariser, (torch.stack((task, regulariser)).detach(), buffers)

    def _update(self, gradients: Tensors, numbers: Any) -> None:
        if self.config.clip:  # each net by its own norm
            square = sum(g.flatten(1).square().sum(1) for g in gradients.values())
            factor = (self.config.clip / (torch.as_tensor(square).sqrt() + 1e-6)).clamp(max=1.0)
            gradients = {n: g * factor.view(-1, *(1,) * (g.dim() - 1)) for n, g in gradients.items()}
        for i, ((start, tensors), optimiser) in enumerate(zip(self.parts, self.optimisers, strict=True)):
            for tensor, gradient in zip(tensors, gradients.values(), strict=True):
                tensor.grad = gradient[start : start + len(tensor)].contiguous()  # as a fused optimiser wants it
            set_step_size(optimiser, numbers[i])
            optimiser.step()

    def train(self) -> None:
        self.objective.train()

    def measured(self, i: int) -> nn.Module:
        with torch.no_grad():
            for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers()):
                tensor.copy_((self.parameters | self.buffers)[name][i])
        return self.model

    def finite(self) -> list[bool]:
        return torch.stack([one.isfinite().flatten(1).all(1) for one in self.parameters.values()]).all(0).tolist()

    def end(self) -> None:
        self.step = self._step  # recordings hold memory
        self.model.eval()

    def state(self) -> dict[str, Any]:
        optimisers = [optimiser.state_dict() for optimiser in self.optimisers]
        return {"parameters": self.parameters, "buffers": self.buffers, "optimisers": optimisers}

    def load(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            for mine, kept in ((self.parameters, state["parameters"]), (self.buffers, state["buffers"])):
                for name, tensor in mine.items():
                    tensor.copy_(kept[name])
        for optimiser, one in zip(self.optimisers, state["optimisers"], strict=True):
            load_optimiser(optimiser, one)

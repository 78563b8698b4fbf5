"""The batches of a training: which samples, how they are moved, and what else is random; from the seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from racecar_lab.training import augment, distributed, rng
from racecar_lab.training.objective import Objective
from racecar_lab.training.spec import Training

Drawn = Sequence[Any]
"""Tensors, or None, of a step or of all steps of an epoch: indices, noise of the regulariser, moves, latent numbers."""


class Batches:
    """Those of one training, made on the device.

    Args:
        objectives: of the turns on every batch.
        layout: memory format of the samples.
    """

    def __init__(
        self,
        training: Training,
        objectives: Sequence[Objective],
        device: torch.device,
        layout: torch.memory_format | None = None,
    ) -> None:
        self.task, self.recipe, self.device, self.layout = training.task.to(device), training.recipe, device, layout
        self.seed, self.stage, self.batch = training.seed, training.name, training.config.batch
        self.per_epoch = rng.steps_per_epoch(len(training.task.train), self.batch)
        self._all = None
        if self.per_epoch == 1 and not 0 < self.batch < len(training.task.train):  # the same in every epoch
            self._all = rng.order(len(training.task.train), 0, self.seed, self.stage, 0).to(device)
        self._needs = [(one.own.noise, one.turn.latent) for one in objectives]

    def draw(self, epoch: int) -> list[Drawn]:
        """For every turn, what is random in all steps of an epoch, (steps, …)."""
        name = self.seed, self.stage, epoch
        order = self._all
        if order is None:
            order = rng.order(len(self.task.train), self.batch, *name)
        moves = augment.draw(self.recipe, order.shape, *name)
        turns: list[Drawn] = []
        for i, (count, shape) in enumerate(self._needs):
            own = name if len(self._needs) == 1 else (self.seed, f"{self.stage}, turn {i}", epoch)
            noise = rng.noise(count, len(order), *own) if count else None
            latent = rng.latent((*order.shape, *shape), *own) if shape else None
            drawn = order, noise, moves, latent
            turns.append([None if one is None else one.to(self.device) for one in drawn])
        return turns

    def take(self, chosen: Tensor, moves: Tensor | None) -> tuple[Tensor, Tensor]:
        """The samples and labels of a step; of the processes that share a batch, this one's."""
        chosen, train = distributed.share(chosen), self.task.train
        whole = len(chosen) == len(train)  # then in their order
        x, y = (train.x, train.y) if whole else (train.x[chosen], train.y[chosen])
        if moves is not None:
            x = augment.apply(self.recipe, x, distributed.share(moves))
        return (x if self.layout is None else x.contiguous(memory_format=self.layout)), y


class StackedBatches:
    """Those of many trainings of one configuration, with a dimension for the nets: each has what it had alone."""

    def __init__(self, trainings: Sequence[Training], objective: Objective, device: torch.device) -> None:
        keys = [(one.seed, id(one.task)) for one in trainings]  # folds have other data with the same seed
        alone = {key: Batches(one, [objective], device) for key, one in dict(zip(keys, trainings, strict=True)).items()}
        self.tasks, self._alone = [alone[key].task for key in keys], list(alone.values())
        self._which = torch.tensor([list(alone).index(key) for key in keys], device=device)
        """Of every net, the place of its seed and data among all."""
        self.x = torch.stack([one.task.train.x for one in self._alone])
        self.y = torch.stack([one.task.train.y for one in self._alone])
        self.recipe, self.per_epoch = trainings[0].recipe, self._alone[0].per_epoch

    def draw(self, epoch: int) -> list[Drawn]:
        """(steps, nets, …); empty tensors, which vmap takes, where nothing is drawn."""
        each = zip(*(one.draw(epoch)[0] for one in self._alone), strict=True)
        drawn = [None if some[0] is None else torch.stack(some, 1)[:, self._which] for some in each]
        nothing = self._which.new_empty(self.per_epoch, len(self._which), 0)
        return [[nothing if one is None else one for one in drawn]]

    def take(self, chosen: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
        """(nets, batch, …)."""
        rows = self._which.unsqueeze(1)
        x, y = self.x[rows, chosen], self.y[rows, chosen]
        if moves.numel():
            x = augment.apply(self.recipe, x.flatten(0, 1), moves.flatten(0, 1)).view_as(x)
        return x, y

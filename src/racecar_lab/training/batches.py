"""The batches of a training: samples, augmentation and all other random tensors, which the seed alone decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from racecar_lab.training import augment, distributed, rng
from racecar_lab.training.objective import Objective
from racecar_lab.training.spec import Training

Drawn = Sequence[Any]
"""The random tensors of a step (or of all steps of an epoch, stacked): indices of the samples, noise of the
regulariser, augmentation, latent numbers; None where there is nothing to draw."""


class Batches:
    """The batches of one training, made on the device.

    Args:
        objectives: those of the turns on every batch.
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
        samples = len(training.task.train)
        self.per_epoch = rng.steps_per_epoch(samples, self.batch)
        self._whole_order = None
        if self.per_epoch == 1 and not 0 < self.batch < samples:  # one batch with all samples: no shuffling
            self._whole_order = rng.order(samples, 0, self.seed, self.stage, 0).to(device)
        self._needs = [(objective.regularised.noise, objective.turn.latent) for objective in objectives]

    def draw(self, epoch: int) -> list[Drawn]:
        """The random tensors of an epoch's steps, (steps, …) each, for every turn."""
        key = self.seed, self.stage, epoch
        order = self._whole_order
        if order is None:
            order = rng.order(len(self.task.train), self.batch, *key)
        moves = augment.draw(self.recipe, order.shape, *key)
        turns: list[Drawn] = []
        for i, (count, shape) in enumerate(self._needs):
            turn_key = key if len(self._needs) == 1 else (self.seed, f"{self.stage}, turn {i}", epoch)
            noise = rng.noise(count, len(order), *turn_key) if count else None
            latent = rng.latent((*order.shape, *shape), *turn_key) if shape else None
            drawn = order, noise, moves, latent
            turns.append([None if tensor is None else tensor.to(self.device) for tensor in drawn])
        return turns

    def take(self, chosen: Tensor, moves: Tensor | None) -> tuple[Tensor, Tensor]:
        """The samples and labels of a step, augmented; if processes share the batch, this process's part."""
        chosen, train = distributed.share(chosen), self.task.train
        whole = len(chosen) == len(train)  # all samples in their order need no copy
        x, y = (train.x, train.y) if whole else (train.x[chosen], train.y[chosen])
        if moves is not None:
            x = augment.apply(self.recipe, x, distributed.share(moves))
        return (x if self.layout is None else x.contiguous(memory_format=self.layout)), y


class StackedBatches:
    """The batches of E trainings of one configuration, stacked. Each training has the batches that it would have
    alone; trainings with the same seed and data share them."""

    def __init__(self, trainings: Sequence[Training], objective: Objective, device: torch.device) -> None:
        keys = [(training.seed, id(training.task)) for training in trainings]  # folds: other data, the same seed
        distinct = dict(zip(keys, trainings, strict=True))
        batches = {key: Batches(training, [objective], device) for key, training in distinct.items()}
        self.tasks, self._batches = [batches[key].task for key in keys], list(batches.values())
        self._which = torch.tensor([list(batches).index(key) for key in keys], device=device)
        """For each training, the index of its batches."""
        self.x = torch.stack([one.task.train.x for one in self._batches])
        self.y = torch.stack([one.task.train.y for one in self._batches])
        self.recipe, self.per_epoch = trainings[0].recipe, self._batches[0].per_epoch

    def draw(self, epoch: int) -> list[Drawn]:
        """The random tensors of an epoch's steps, (steps, E, …) each, for the one turn. Where there is nothing to draw
        they are empty tensors, because vmap takes no None."""
        each = zip(*(batches.draw(epoch)[0] for batches in self._batches), strict=True)
        stacked = [None if parts[0] is None else torch.stack(parts, 1)[:, self._which] for parts in each]
        nothing = self._which.new_empty(self.per_epoch, len(self._which), 0)
        return [[nothing if tensor is None else tensor for tensor in stacked]]

    def take(self, chosen: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
        """The samples and labels of a step, (E, N, …), augmented."""
        rows = self._which.unsqueeze(1)
        x, y = self.x[rows, chosen], self.y[rows, chosen]
        if moves.numel():
            x = augment.apply(self.recipe, x.flatten(0, 1), moves.flatten(0, 1)).view_as(x)
        return x, y

"""The batches of a training: samples, augmentation and all other random tensors, which the seed alone decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from racecar_lab.training import augment, distributed, rng
from racecar_lab.training.objective import Objective
from racecar_lab.training.spec import Training


class Draws(NamedTuple):
    """The random tensors of a step, or of all steps of an epoch, stacked; None where nothing is drawn. Those of E
    trainings at once have a dimension E before N."""

    chosen: Tensor
    """Indices of the samples, (N,)."""
    noise: Tensor | None
    """Normal random numbers from which the regulariser makes its random vectors, (count,): as many as it uses in one
    call. None if it uses none."""
    moves: Tensor | None
    """Random numbers for the augmentation, (N, numbers)."""
    latent: Tensor | None
    """Normal random numbers for the loss, (N, …)."""

    def at(self, step: int) -> Draws:
        """The random tensors of one step, from those of all steps of an epoch; ``step`` is its number in the epoch."""
        return Draws._make(tensor if tensor is None else tensor[step] for tensor in self)


class Batches:
    """The batches of one training, made on the device.

    Args:
        objectives: one for each turn on a batch; they say which random numbers their losses need.
        layout: memory format of the samples; None: as they are.
    """

    def __init__(
        self,
        training: Training,
        objectives: Iterable[Objective],
        device: torch.device,
        layout: torch.memory_format | None = None,
    ) -> None:
        self.training, self.device, self.layout = training, device, layout
        self.task = training.task.to(device)
        self.tasks = [self.task]
        samples, batch = len(self.task.train), training.config.batch
        self._order = None
        if not 0 < batch < samples:  # one batch with all samples: no shuffling
            self._order = rng.order(samples, batch, training.seed, training.name, 0).to(device)
        self._needs = [(objective.regularised.noise, objective.turn.latent) for objective in objectives]

    def draw(self, epoch: int) -> list[Draws]:
        """The random tensors of all steps of an epoch: one ``Draws`` for each turn on a batch."""
        training = self.training
        key = training.seed, training.name, epoch
        order = self._order
        if order is None:
            order = rng.order(len(self.task.train), training.config.batch, *key).to(self.device)
        moves = self._to_device(augment.draw(training.recipe, order.shape, *key))
        turns = []
        for i, (count, shape) in enumerate(self._needs):
            turn_key = key if len(self._needs) == 1 else (training.seed, f"{training.name}, turn {i}", epoch)
            noise = rng.noise(count, len(order), *turn_key) if count else None
            latent = rng.latent((*order.shape, *shape), *turn_key) if shape else None
            turns.append(Draws(order, self._to_device(noise), moves, self._to_device(latent)))
        return turns

    def _to_device(self, tensor: Tensor | None) -> Tensor | None:
        return tensor if tensor is None else tensor.to(self.device)

    def take(self, draws: Draws) -> tuple[Tensor, Tensor]:
        """The samples and labels of a step, augmented; if processes share the batch, this process's part."""
        chosen, train = distributed.share(draws.chosen), self.task.train
        whole = len(chosen) == len(train)  # all samples in their order need no copy
        x, y = (train.x, train.y) if whole else (train.x[chosen], train.y[chosen])
        if draws.moves is not None:
            x = augment.apply(self.training.recipe, x, distributed.share(draws.moves))
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
        """For each training, the index of its batches in ``_batches``, (E,)."""
        self.x = torch.stack([each.task.train.x for each in self._batches])
        self.y = torch.stack([each.task.train.y for each in self._batches])
        self.recipe = trainings[0].recipe

    def draw(self, epoch: int) -> list[Draws]:
        """The random tensors of all steps of an epoch, for all trainings: a list of one ``Draws``, because a batch has
        one turn."""
        each = zip(*(batches.draw(epoch)[0] for batches in self._batches), strict=True)
        return [Draws._make(None if parts[0] is None else torch.stack(parts, 1)[:, self._which] for parts in each)]

    def take(self, draws: Draws) -> tuple[Tensor, Tensor]:
        """The samples and labels of a step for all trainings, (E, N, …), augmented."""
        rows = self._which.unsqueeze(1)
        x, y = self.x[rows, draws.chosen], self.y[rows, draws.chosen]
        if draws.moves is not None:
            x = augment.apply(self.recipe, x.flatten(0, 1), draws.moves.flatten(0, 1)).view_as(x)
        return x, y

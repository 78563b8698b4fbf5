"""Drawing the tasks of a stream from the seed alone, so that all methods see the same tasks, however many nets train at
once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from racecar_lab.experiment import Task
from racecar_lab.experiments.streams.config import StreamsConfig
from racecar_lab.training import rng


class DrawnTask(NamedTuple):
    """One task of one seed, as indices into the pool of pictures."""

    chosen: Tensor
    """Indices of the task's training pictures in the training pool, (P,)."""
    y: Tensor
    """Labels of the task's training pictures, (P,)."""
    tests: Tensor
    """Indices of the task's test pictures in the test pool, (T,); T is 0 for tasks without test pictures."""
    test_y: Tensor
    """Labels of the task's test pictures, (T,)."""
    pixels: Tensor | None = None
    """Permutation of the pixels, (D,): for every pixel the one that it is taken from. None: no permutation."""


def draw_task(config: StreamsConfig, pool: Task, seed: int, number: int) -> DrawnTask:
    """Draw the task with this number, from 0, of the stream with this seed."""
    of_task, empty = _generator(config, seed, "task", number), torch.empty(0, dtype=torch.long)
    if config.stream == "pairs":
        return _pair(config, pool, seed, number)
    of_stream = _generator(config, seed, "images")
    chosen = torch.randperm(len(pool.train), generator=of_stream)[: config.size]
    if config.stream != "permuted":
        labels = torch.randint(config.protocol.classes, (len(chosen),), generator=of_task)
        return DrawnTask(chosen, labels, empty, empty)
    tests = torch.randperm(len(pool.test), generator=of_stream)[: config.tests]
    pixels = torch.randperm(pool.train.x[0].numel(), generator=of_task)
    return DrawnTask(chosen, pool.train.y[chosen], tests, pool.test.y[tests], pixels)


def order(config: StreamsConfig, samples: int, seed: int, number: int, repeat: int) -> Tensor:
    """Draw the batches of one pass over a task, as indices of samples, (steps, batch), without an incomplete last
    batch. ``number`` is that of the task, ``repeat`` that of the pass."""
    shuffled = torch.randperm(samples, generator=_generator(config, seed, "order", number, repeat))
    batch = config.size_of_batch
    return shuffled[: samples // batch * batch].view(-1, batch)


def _pair(config: StreamsConfig, pool: Task, seed: int, number: int) -> DrawnTask:
    """Draw a task of the stream "pairs": two classes, labelled 0 and 1. After all classes were used, they are paired
    anew."""
    kinds = torch.arange(int(pool.train.y.max()) + 1)
    turn, place = divmod(number, len(kinds) // 2)
    pair = kinds[torch.randperm(len(kinds), generator=_generator(config, seed, "pairs", turn))][2 * place :][:2]
    parts = [
        [(y == kind).nonzero().squeeze(1)[: most // 2] for kind in pair]
        for y, most in ((pool.train.y, config.size), (pool.test.y, config.tests))
    ]
    (chosen, y), (tests, test_y) = (
        (torch.cat(indices), torch.arange(2).repeat_interleave(torch.tensor([len(part) for part in indices])))
        for indices in parts
    )
    return DrawnTask(chosen, y, tests, test_y)


def _generator(config: StreamsConfig, seed: int, *what: object) -> torch.Generator:
    """Make the random generator for the purpose ``what`` in the stream with this seed."""
    return rng.generator("streams", config.stream, seed, *what)


class Stream:
    """The streams on which E nets are trained, on their device; nets with the same seed have the same tasks.

    Args:
        config: the configuration of all nets.
        pool: the pictures from which tasks are drawn, on the CPU.
        seeds: a seed for each net.
        device: where the nets are trained.
    """

    def __init__(self, config: StreamsConfig, pool: Task, seeds: Sequence[int], device: torch.device | str) -> None:
        self.config, self.pool, self.device = config, pool, torch.device(device)
        self.seeds = sorted(set(seeds))
        self.seed_of_net = torch.tensor([self.seeds.index(seed) for seed in seeds], device=self.device)
        self.x, self.test_x = pool.train.x.to(self.device), pool.test.x.to(self.device)
        self.samples = len(draw_task(config, pool, self.seeds[0], 0).chosen)
        """Number of training pictures of each task."""

    def task(self, number: int) -> StreamTask:
        """Draw the task with this number, from 0, for every seed."""
        tasks = [draw_task(self.config, self.pool, seed, number) for seed in self.seeds]
        chosen, y, tests, test_y = (self._moved(torch.stack([task[i] for task in tasks])) for i in range(4))  # type: ignore[misc]
        pixels = [task.pixels for task in tasks if task.pixels is not None]
        return StreamTask(
            self, DrawnTask(chosen, y, tests, test_y, self._moved(torch.stack(pixels)) if pixels else None)
        )

    def order(self, number: int, repeat: int) -> Tensor:
        """Draw the batches of one pass over a task for every seed, as indices of samples, (steps, seeds, batch), on the
        device. ``number`` is that of the task, ``repeat`` that of the pass."""
        return self._moved(
            torch.stack([order(self.config, self.samples, seed, number, repeat) for seed in self.seeds], 1)
        )

    def _moved(self, x: Tensor) -> Tensor:
        """Copy a tensor from the CPU to the stream's device, without waiting."""
        return x.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else x


class StreamTask:
    """The tasks with one number for all S seeds of a stream. Its methods return samples for all E nets.

    Args:
        stream: the stream of the tasks.
        indices: the drawn tasks of all seeds, each field (S, …).
    """

    def __init__(self, stream: Stream, indices: DrawnTask) -> None:
        self.stream, self.indices = stream, indices

    def batch(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Training samples (E, N, *shape) and labels (E, N) at indices (S, N) of the task."""
        x = self._permuted(self.stream.x[self.indices.chosen.gather(1, at)])
        return x[self.stream.seed_of_net], self.indices.y.gather(1, at)[self.stream.seed_of_net]

    def test(self, at: slice) -> tuple[Tensor, Tensor]:
        """Test samples (E, N, *shape) and labels (E, N) for a slice of the task's test pictures."""
        x = self._permuted(self.stream.test_x[self.indices.tests[:, at]])
        return x[self.stream.seed_of_net], self.indices.test_y[:, at][self.stream.seed_of_net]

    def _permuted(self, x: Tensor) -> Tensor:
        """Samples (S, N, *shape) with their pixels permuted; unchanged if the task permutes none."""
        if self.indices.pixels is None:
            return x
        return x.flatten(2).gather(2, self.indices.pixels[:, None].expand(-1, x.shape[1], -1)).view(x.shape)

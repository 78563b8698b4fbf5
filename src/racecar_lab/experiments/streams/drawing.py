"""The tasks of a stream, drawn from its seed alone: every method sees the same ones, however many nets are stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from racecar_lab.experiment import Task
from racecar_lab.experiments.streams.config import StreamsConfig
from racecar_lab.training import rng


class DrawnTask(NamedTuple):
    """One task of one seed."""

    chosen: Tensor
    """Its samples, P of the pool."""
    y: Tensor
    """Their labels, (P,)."""
    tests: Tensor
    """Its test pictures, T of the other pool; none where it has none."""
    test_y: Tensor
    pixels: Tensor | None = None
    """Where each pixel is taken from, (D,)."""


def drawn(config: StreamsConfig, pool: Task, seed: int, number: int) -> DrawnTask:
    """The ``number``-th task, counted from 0."""
    task, none = _generator(config, seed, "task", number), torch.empty(0, dtype=torch.long)
    if config.stream == "pairs":
        return _pair(config, pool, seed, number)
    whole = _generator(config, seed, "images")
    chosen = torch.randperm(len(pool.train), generator=whole)[: config.size]
    if config.stream != "permuted":
        labels = torch.randint(config.protocol.classes, (len(chosen),), generator=task)
        return DrawnTask(chosen, labels, none, none)
    tests = torch.randperm(len(pool.test), generator=whole)[: config.tests]
    pixels = torch.randperm(pool.train.x[0].numel(), generator=task)
    return DrawnTask(chosen, pool.train.y[chosen], tests, pool.test.y[tests], pixels)


def order(config: StreamsConfig, samples: int, seed: int, number: int, repeat: int) -> Tensor:
    """In which order a pass goes through a task's samples, (steps, batch); a rest that fills no batch is left out."""
    shuffled = torch.randperm(samples, generator=_generator(config, seed, "order", number, repeat))
    batch = config.size_of_batch
    return shuffled[: samples // batch * batch].view(-1, batch)


def _pair(config: StreamsConfig, pool: Task, seed: int, number: int) -> DrawnTask:
    """Two classes; after all classes were drawn they are paired anew."""
    kinds = torch.arange(int(pool.train.y.max()) + 1)
    turn, place = divmod(number, len(kinds) // 2)
    pair = kinds[torch.randperm(len(kinds), generator=_generator(config, seed, "pairs", turn))][2 * place :][:2]
    parts = [
        [(y == kind).nonzero().squeeze(1)[: most // 2] for kind in pair]
        for y, most in ((pool.train.y, config.size), (pool.test.y, config.tests))
    ]
    (chosen, y), (tests, test_y) = (
        (torch.cat(some), torch.arange(2).repeat_interleave(torch.tensor([len(one) for one in some]))) for some in parts
    )
    return DrawnTask(chosen, y, tests, test_y)


def _generator(config: StreamsConfig, seed: int, *what: object) -> torch.Generator:
    return rng.generator("streams", config.stream, seed, *what)


class Stream:
    """The tasks of many nets, on their device; those of one seed have the same ones.

    Args:
        pool: the pictures from which tasks are drawn, on the CPU.
        seeds: one for each net.
    """

    def __init__(self, config: StreamsConfig, pool: Task, seeds: Sequence[int], device: torch.device | str) -> None:
        self.config, self.pool, self.device = config, pool, torch.device(device)
        self.seeds = sorted(set(seeds))
        self.which = torch.tensor([self.seeds.index(seed) for seed in seeds], device=self.device)
        self.x, self.test_x = pool.train.x.to(self.device), pool.test.x.to(self.device)
        self.samples = len(drawn(config, pool, self.seeds[0], 0).chosen)
        """Of each task."""

    def task(self, number: int) -> StreamTask:
        """The ``number``-th task of every seed."""
        tasks = [drawn(self.config, self.pool, seed, number) for seed in self.seeds]
        chosen, y, tests, test_y = (self._moved(torch.stack([one[i] for one in tasks])) for i in range(4))  # type: ignore[misc]
        pixels = [one.pixels for one in tasks if one.pixels is not None]
        return StreamTask(
            self, DrawnTask(chosen, y, tests, test_y, self._moved(torch.stack(pixels)) if pixels else None)
        )

    def order(self, number: int, repeat: int) -> Tensor:
        """(steps, seeds, batch) on the device."""
        return self._moved(
            torch.stack([order(self.config, self.samples, seed, number, repeat) for seed in self.seeds], 1)
        )

    def _moved(self, one: Tensor) -> Tensor:
        return one.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else one


class StreamTask:
    """A task of all seeds S; what it gives is for the E nets.

    Args:
        drawn: of all seeds, each field (S, …).
    """

    def __init__(self, stream: Stream, drawn: DrawnTask) -> None:
        self.stream, self.drawn = stream, drawn

    def batch(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Samples (E, N, *shape) and labels (E, N) at places (S, N) of the task."""
        x = self._seen(self.stream.x[self.drawn.chosen.gather(1, at)])
        return x[self.stream.which], self.drawn.y.gather(1, at)[self.stream.which]

    def test(self, at: slice) -> tuple[Tensor, Tensor]:
        """The same of its test pictures."""
        x = self._seen(self.stream.test_x[self.drawn.tests[:, at]])
        return x[self.stream.which], self.drawn.test_y[:, at][self.stream.which]

    def _seen(self, x: Tensor) -> Tensor:
        """Samples (S, N, *shape) as the task shows them."""
        if self.drawn.pixels is None:
            return x
        return x.flatten(2).gather(2, self.drawn.pixels[:, None].expand(-1, x.shape[1], -1)).view(x.shape)

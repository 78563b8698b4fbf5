"""A training step as a CUDA graph: recorded once, then replayed, for nets that wait for their launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from racecar_lab.training.batches import Drawn

BLOCK = 256
"""Steps whose numbers are put on the device together."""
WARM = 3
"""Steps that run as they are before one is recorded: they make the optimiser's state and choose the kernels."""

Replay = tuple[Callable[[], Any], Tensor]
"""What repeats a step, and where its result stands afterwards."""


def record(step: Callable[[], Tensor]) -> Replay:
    """Record a step as a CUDA graph, without doing it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph.replay, result


def aside(step: Callable[[], Tensor]) -> Tensor:
    """A step on another stream, as torch wants those before a recording."""
    stream = _beside(torch.cuda.current_device())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = step()
    torch.cuda.current_stream().wait_stream(stream)
    return result


@cache
def _beside(device: int) -> torch.cuda.Stream:
    """One for all trainings: cuBLAS keeps memory for every stream that it ever saw."""
    return torch.cuda.Stream(device)


class Captured:
    """Steps that differ in the numbers of their tensors alone.

    Args:
        step: from tensors to a tensor; it may change others in place, but never waits for the device.
    """

    def __init__(self, step: Callable[..., Tensor]) -> None:
        self.step = step
        self._given: list[Tensor | None] = []
        self._done: Counter[Hashable] = Counter()
        self._replays: dict[Hashable, Replay] = {}

    def __call__(self, kind: Hashable, *tensors: Tensor | None) -> Tensor:
        """Do a step.

        Args:
            kind: what the step depends on beside its tensors; every kind is recorded by itself.
            tensors: always of the same shapes. None stays None.
        """
        if not self._given:
            self._given = [None if one is None else one.clone() for one in tensors]
        for mine, one in zip(self._given, tensors, strict=True):
            if mine is not None and one is not None:
                mine.copy_(one)
        self._done[kind] += 1
        if self._done[kind] <= WARM:
            return aside(lambda: self.step(*self._given))
        if kind not in self._replays:
            self._replays[kind] = record(lambda: self.step(*self._given))
        replay, result = self._replays[kind]
        replay()
        return result.clone()  # the next replay writes there


class CudaGraph:
    """Another kind of step, replayed. It reads its numbers on the device, where they are put for many steps at once.

    Args:
        step: has ``device``, ``begin``, ``numbers`` and ``whole``, as ``Eager`` does.
    """

    def __init__(self, step: Any) -> None:
        self.step, self._captured = step, Captured(lambda *given: step.whole(given[:-1], given[-1]))
        self._numbers, self._first = torch.empty(0), 0

    def __call__(self, cycle: int, drawn: Drawn) -> Tensor:
        at = cycle - self._first
        if not 0 <= at < len(self._numbers):
            numbers = [self.step.numbers(one) for one in range(cycle, cycle + BLOCK)]
            self._numbers, self._first, at = torch.tensor(numbers, device=self.step.device), cycle, 0
        return self._captured(self.step.begin(cycle), *drawn, self._numbers[at])

"""A training step as a CUDA graph: captured once, then replayed, for small nets, which wait for kernel launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from racecar_lab.training.batches import Draws

BLOCK = 256
"""Number of steps whose hyperparameters are copied to the device together."""
WARM_UPS = 3
"""Number of steps that are done before one is captured; they create the optimiser's state and choose the kernels."""

Replay = tuple[Callable[[], Any], Tensor]
"""A function that replays a step, and the tensor that then holds its result."""


def capture(step: Callable[[], Tensor]) -> Replay:
    """Capture a step as a CUDA graph, without executing it. Returns the function that replays it, and the tensor that
    then holds its result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph.replay, result


def warm_up_on_side_stream(step: Callable[[], Tensor]) -> Tensor:
    """Do a step on a side stream, as torch requires before a capture."""
    stream = _side_stream(torch.cuda.current_device())
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        result = step()
    torch.cuda.current_stream().wait_stream(stream)
    return result


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """The CUDA stream of a device on which steps are done before they are captured. All trainings share it, because
    cuBLAS keeps memory for every stream that it has seen."""
    return torch.cuda.Stream(device)


class Captured:
    """A step that is replayed as a CUDA graph: its calls differ only in the values of its tensors.

    Args:
        step: a function (kind, tensors …) → tensor; it may change other tensors in place, but never waits for the
            device.
    """

    def __init__(self, step: Callable[..., Tensor]) -> None:
        self.step = step
        self._inputs: list[Tensor | None] = []
        self._calls: Counter[Hashable] = Counter()
        self._replays: dict[Hashable, Replay] = {}

    def __call__(self, kind: Hashable, *tensors: Tensor | None) -> Tensor:
        """Do a step: the first ones are done as they are, the later ones replayed.

        Args:
            kind: a key for all that the step depends on besides its tensors, such as whether it has the regulariser;
                each kind has a graph of its own.
            tensors: each has the same shape in all calls, or is None in all calls.
        """
        if not self._inputs:
            self._inputs = [None if tensor is None else tensor.clone() for tensor in tensors]
        for static, tensor in zip(self._inputs, tensors, strict=True):
            if static is not None and tensor is not None:
                static.copy_(tensor)
        self._calls[kind] += 1
        if self._calls[kind] <= WARM_UPS:
            return warm_up_on_side_stream(lambda: self.step(kind, *self._inputs))
        if kind not in self._replays:
            self._replays[kind] = capture(lambda: self.step(kind, *self._inputs))
        replay, result = self._replays[kind]
        replay()
        return result.clone()  # the next replay overwrites it


class CudaGraph:
    """A training step of another kind, such as ``Eager``, that is replayed as a CUDA graph. Its hyperparameters are
    copied to the device for many steps at once.

    Args:
        step: has ``device``, ``objective``, ``hyperparameters`` and ``run``, as ``Eager`` does.
    """

    def __init__(self, step: Any) -> None:
        self.step = step
        self._captured = Captured(lambda on, *tensors: step.run(on, Draws(*tensors[:-1]), tensors[-1]))
        self._block, self._first = torch.empty(0), 0

    def __call__(self, step: int, draws: Draws) -> Tensor:
        row = step - self._first
        if not 0 <= row < len(self._block):
            rows = [self.step.hyperparameters(i) for i in range(step, step + BLOCK)]
            self._block, self._first, row = torch.tensor(rows, device=self.step.device), step, 0
        return self._captured(self.step.objective.is_on(step), *draws, self._block[row])

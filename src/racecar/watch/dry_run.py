"""Run a model and record its calls, or run it without changing its state."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from racecar.support.torch_private import own_buffers, version
from racecar.watch import nested
from racecar.watch.inputs import batch_tensors
from racecar.watch.recorder import Watch
from racecar.watch.trace import Trace


def watch_forward(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], keep: frozenset[int] = frozenset()
) -> tuple[Any, Trace]:
    """Run the model once; its output, and the trace of its calls.

    Args:
        model, args, kwargs: the call.
        keep: calls (or inputs, as −1 − i) whose tensor is cloned, because the model changes it in place later.
    """
    inputs = batch_tensors(args, kwargs)
    kept_inputs = [x.clone() if -1 - i in keep else x for i, x in enumerate(inputs)]
    versions = [version(x) for x in inputs]
    watch = Watch(keep)
    with watch:
        output = model(*args, **kwargs)
    if nested.among(inputs):
        inputs = kept_inputs = nested.pad(watch, inputs, versions)
        versions = [version(x) for x in inputs]
    return output, Trace(watch.calls, inputs, watch.versions, versions, kept_inputs, keep, watch.grad)


class RngState:
    """A snapshot of the random number generators of torch (on the CPU and the model's devices), Python and NumPy."""

    def __init__(self, model: nn.Module) -> None:
        devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
        self._torch = torch.get_rng_state()
        self._cuda = [(device, torch.cuda.get_rng_state(device)) for device in devices]
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = None if numpy is None else numpy.random.get_state()

    def restore(self) -> None:
        torch.set_rng_state(self._torch)
        for device, state in self._cuda:
            torch.cuda.set_rng_state(state, device)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


@contextmanager
def untouched(model: nn.Module, start: RngState | None = None) -> Iterator[None]:
    """Context manager: the model works on copies of its buffers, and buffers and random state are put back afterwards.

    Args:
        model: whose buffers are copied.
        start: random state to begin with; None: the present one.
    """
    now = RngState(model)
    buffers = [(module, name, buffer) for module in model.modules() for name, buffer in own_buffers(module).items()]
    copies: dict[int, Tensor] = {}
    try:
        if start is not None:
            start.restore()
        for module, name, buffer in buffers:
            if buffer is not None:
                own_buffers(module)[name] = copies.setdefault(id(buffer), buffer.clone())
        yield
    finally:
        for module, name, buffer in buffers:
            own_buffers(module)[name] = buffer
        now.restore()

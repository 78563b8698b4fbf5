"""Notice a net that dies: one warning, and no step waits for the device."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from racecar.errors import DeadLayerWarning
from racecar.reverse.weights import Weight, layer_weights
from racecar.support.compiling import capturing
from racecar.support.torch_private import in_dispatch_mode
from racecar.watch.names import shown

EVERY = 4
"""Training calls from one look to the next, in eager mode."""
LOOKS = 3
"""So many looks in a row have to find a layer dead: a blank batch is no death."""


class Signs(NamedTuple):
    """What one step shows of the constrained layers."""

    layers: tuple[tuple[str, ...], ...]
    """The names of each, its own first."""
    dead: Tensor
    """(layers,): d_m is 0 in all samples, or the term is 0 or not finite."""


class Health:
    """Counts looks that find a layer dead. What a look finds is read when the next one comes, so that nothing waits."""

    def __init__(self) -> None:
        self.calls = 0
        self.warned = False
        self._streaks: dict[str, int] = {}
        self._pending: tuple[Signs, Weight, Tensor, torch.cuda.Event | None] | None = None

    def due(self) -> bool:
        """Whether this training call is one to look at."""
        self.calls += 1
        return not self.warned and self.calls % EVERY == 1

    def see(self, signs: Signs | None, weight: Weight = 1.0) -> None:
        """Take what a step shows; warn of what earlier ones have shown, with their λ."""
        if self._pending is not None:
            old, used, found, copied = self._pending
            if copied is not None and not copied.query():
                return
            self._pending = None
            self._count(old.layers, found.tolist(), used)
        if signs is not None and not self.warned:
            self._pending = (signs, weight, *_to_host(signs.dead))
            if not signs.dead.is_cuda:
                self.see(None)

    def _count(self, layers: Sequence[Sequence[str]], dead: Sequence[bool], weight: Weight) -> None:
        gone = [names for names, one in zip(layers, dead, strict=True) if one]
        self._streaks = {names[0]: self._streaks.get(names[0], 0) + 1 for names in gone}
        long = [names for names in gone if self._streaks[names[0]] >= LOOKS]
        if not long or self.warned:
            return
        self.warned = True
        values = layer_weights(weight, long)
        numbers = [float(one.max()) if isinstance(one, Tensor) else one for one in values]
        which = [f"{shown(name)!r} (λ = {one:g})" for (name, *_), one in zip(long, numbers, strict=True)]
        more = f" and {len(which) - 3} more layers" if len(which) > 3 else ""
        warnings.warn(
            f"the reverse pass finds nothing in {', '.join(which[:3])}{more}: for several steps in a row the "
            "activation was 0 for the whole batch, or the term was 0 or not finite. The net may be dead. Try a tenth "
            "of the weight or of the learning rate, gradient='reverse', or a start that fits the activation (He's for "
            "ReLU)",
            DeadLayerWarning,
            stacklevel=6,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pending": None}  # an event of the device is not copied


def can_look() -> bool:
    """Whether numbers can be read at all: not while steps are recorded, as a CUDA graph or by a dispatch mode."""
    return not capturing() and not in_dispatch_mode()


def _to_host(dead: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """A copy on its way to the host, and what says that it has come; a tensor that is there needs neither."""
    if not dead.is_cuda:
        return dead, None
    host = torch.empty(dead.shape, dtype=dead.dtype, pin_memory=True).copy_(dead, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(dead.device))
    return host, copied

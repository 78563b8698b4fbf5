"""Detection of dead layers in training: one warning, and no step waits for the device."""

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

CHECK_EVERY = 4
"""Number of training calls from one check to the next, in eager mode."""
CHECKS = 3
"""Number of checks in a row that must flag a layer before the warning: a single blank batch does not mean death."""


class DeadFlags(NamedTuple):
    """The result of one check: which constrained layers look dead."""

    layers: tuple[tuple[str, ...], ...]
    """For each layer its name, followed by the other names that weight patterns may call it."""
    dead: Tensor
    """(layers,), bool: d_m is 0 in all samples, or the term is 0 or not finite."""


class Health:
    """Counts in how many checks in a row a layer was flagged as dead, and warns once.

    The flags of a check are read when the next check comes, so that no step waits for a GPU.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.warned = False
        self._streaks: dict[str, int] = {}
        self._pending: tuple[DeadFlags, Weight, Tensor, torch.cuda.Event | None] | None = None

    def due(self) -> bool:
        """Count a training call; returns whether this call is to be checked."""
        self.calls += 1
        return not self.warned and self.calls % CHECK_EVERY == 1

    def add(self, flags: DeadFlags | None, weight: Weight = 1.0) -> None:
        """Count the flags of the previous check, which may warn, and keep those of the present one for the next call.

        Args:
            flags: of the present check; None: only count the previous one.
            weight: the λ of that step, as the user gave it, for the message.
        """
        if self._pending is not None:
            old_flags, old_weight, dead, copied = self._pending
            if copied is not None and not copied.query():
                return
            self._pending = None
            self._count(old_flags.layers, dead.tolist(), old_weight)
        if flags is not None and not self.warned:
            self._pending = (flags, weight, *_copy_to_host(flags.dead))
            if not flags.dead.is_cuda:
                self.add(None)

    def _count(self, layers: Sequence[Sequence[str]], dead: Sequence[bool], weight: Weight) -> None:
        dead_layers = [names for names, is_dead in zip(layers, dead, strict=True) if is_dead]
        self._streaks = {names[0]: self._streaks.get(names[0], 0) + 1 for names in dead_layers}
        reported = [names for names in dead_layers if self._streaks[names[0]] >= CHECKS]
        if not reported or self.warned:
            return
        self.warned = True
        weights = layer_weights(weight, reported)
        numbers = [float(value.max()) if isinstance(value, Tensor) else value for value in weights]
        texts = [f"{shown(name)!r} (λ = {number:g})" for (name, *_), number in zip(reported, numbers, strict=True)]
        more = f" and {len(texts) - 3} more layers" if len(texts) > 3 else ""
        warnings.warn(
            f"the reverse pass finds nothing in {', '.join(texts[:3])}{more}: for several steps in a row the "
            "activation was 0 for the whole batch, or the term was 0 or not finite. The net may be dead. Try a tenth "
            "of the weight or of the learning rate, gradient='reverse', or a start that fits the activation (He's for "
            "ReLU)",
            DeadLayerWarning,
            stacklevel=6,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pending": None}  # an event of the device cannot be copied


def can_read_values() -> bool:
    """Whether Python can read numbers from tensors now: not while a CUDA graph or a dispatch mode records the step."""
    return not capturing() and not in_dispatch_mode()


def _copy_to_host(dead: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """A copy of a tensor on the CPU, which may still be on its way, and the event that tells when it has arrived. A
    tensor that is on the CPU is returned as it is, with None."""
    if not dead.is_cuda:
        return dead, None
    host = torch.empty(dead.shape, dtype=dead.dtype, pin_memory=True).copy_(dead, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(dead.device))
    return host, copied

"""What a user may choose about the reverse pass, checked when it is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.plan.plan import MODES
from racecar.rules.registry import Rules
from racecar.run.terms import GRADIENTS, REDUCTIONS, SCALES
from racecar.run.weights import Weight, check_weight
from racecar.watch.inputs import batch_size

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Settings:
    """How a model is reversed; see :class:`racecar.Racecar`."""

    mode: str = "layerwise"
    weight: Weight = 0.001
    scale: str = "relative"
    fraction: float = 1.0
    input_activation: Activation | None = None
    gradient: str = "reverse"
    reduction: str = "mean"
    rules: Rules = field(default_factory=dict)
    """Stronger than the registered ones."""
    times: int = 1
    """What the weight is multiplied by: k where the reverse pass runs in every k-th step."""
    share: str = field(init=False)
    """The fraction as text: torch.compile makes a number that it has seen to differ an input of its graph, and cannot
    cut a slice by that."""

    def __post_init__(self) -> None:
        known = {"mode": MODES, "scale": SCALES, "gradient": GRADIENTS, "reduction": REDUCTIONS}
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise ValueError(f"{name} must be one of {', '.join(values)}, not {getattr(self, name)!r}")
        fraction = self.fraction
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
            raise ValueError(f"fraction must be a number in (0, 1], not {fraction!r}")
        object.__setattr__(self, "share", repr(float(fraction)))
        check_weight(self.weight)
        if isinstance(self.weight, Mapping):  # a copy: a change in place could not be followed
            object.__setattr__(self, "weight", dict(self.weight))

    def slice_of(self, inputs: Sequence[Tensor]) -> tuple[int, int]:
        """(N, n): the batch and how many of its samples the reverse pass sees."""
        size = batch_size(inputs)
        return size, max(1, round(float(self.share) * size))


def activation(given: str | Activation | None) -> Activation | None:
    """``input_activation`` as a function: a callable, or a name such as "relu" or "sigmoid"."""
    if given is None or (callable(given) and not isinstance(given, str)):
        return given
    found = getattr(F, given, None) or getattr(torch, given, None) if isinstance(given, str) else None
    if not callable(found):
        raise ValueError(f"input_activation must be None, a function or a name in torch.nn.functional, not {given!r}")
    return found

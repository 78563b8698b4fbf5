"""What a user may choose about the reverse pass, checked when it is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real

from torch import Tensor

from racecar.plan.plan import MODES
from racecar.reverse.input_activation import Activation
from racecar.reverse.terms import GRADIENTS, REDUCTIONS, SCALES
from racecar.reverse.weights import Weight, check_weight
from racecar.rules.registry import Rules
from racecar.watch.inputs import batch_size

_MOST_TIMES = 10**9


@dataclass(frozen=True, eq=False)
class Settings:
    """How a model is reversed; see :class:`racecar.Racecar`."""

    mode: str = "layerwise"
    weight: Weight = 0.001
    scale: str = "relative"
    fraction: float = 1.0
    input_activation: Activation | None = None
    gradient: str | None = None
    """As it was given; None: that of the mode."""
    reduction: str = "mean"
    rules: Rules = field(default_factory=dict)
    """Stronger than the registered ones."""
    times: int = 1
    """What the weight is multiplied by: k where the reverse pass runs in every k-th step."""
    reach: str = field(init=False)
    """What the gradient of a term reaches: as it was given, or that of the mode."""
    share: str = field(init=False)
    """The fraction as text: torch.compile makes a number that it has seen to differ an input of its graph, and cannot
    cut a slice by that."""

    def __post_init__(self) -> None:
        known = {"mode": MODES, "scale": SCALES, "gradient": GRADIENTS, "reduction": REDUCTIONS}
        for name, values in known.items():
            chosen = getattr(self, name)
            if (not isinstance(chosen, str) or chosen not in values) and (name, chosen) != ("gradient", None):
                raise ValueError(f"{name} must be one of {', '.join(values)}, not {chosen!r:.80}")
        usual = "weights" if self.mode == "linear" else "reverse"
        object.__setattr__(self, "reach", usual if self.gradient is None else self.gradient)
        self._check_linear()
        fraction = self.fraction
        if isinstance(fraction, bool) or not isinstance(fraction, Real) or not 0 < fraction <= 1:
            raise ValueError(f"fraction must be a number in (0, 1], not {fraction!r:.80}")
        object.__setattr__(self, "share", repr(float(fraction)))
        object.__setattr__(self, "times", check_times(self.times, "times"))
        check_weight(self.weight)
        if isinstance(self.weight, Mapping):  # a copy: a change in place could not be followed
            object.__setattr__(self, "weight", dict(self.weight))

    def _check_linear(self) -> None:
        """Refuse what mode "linear" has no place for."""
        if self.mode != "linear":
            return
        if self.gradient == "reverse":
            raise ValueError(
                "in mode 'linear' gradient='reverse' would be the same as 'weights': give gradient='weights' or "
                "gradient='both'"
            )
        if self.input_activation is not None:
            raise ValueError("mode 'linear' applies no activation on the way back: leave input_activation out")

    def slice_of(self, inputs: Sequence[Tensor]) -> tuple[int, int]:
        """(N, n): the batch and how many of its samples the reverse pass sees."""
        size = batch_size(inputs)
        return size, max(1, round(float(self.share) * size))


def check_times(times: int, name: str) -> int:
    """A number of steps, or an error that calls it ``name``."""
    if isinstance(times, bool) or not isinstance(times, Integral) or times < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {times!r:.80}")
    if times > _MOST_TIMES:
        raise ValueError(f"{name} must be at most {_MOST_TIMES}: so many times the weight may overflow float32")
    return int(times)

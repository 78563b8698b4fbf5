"""The settings of a reverse pass, checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real

from torch import Tensor

from racecar.plan.routes import MODES
from racecar.reverse.input_activation import Activation
from racecar.reverse.terms import GRADIENTS, REDUCTIONS, SCALES
from racecar.reverse.weights import Weight, all_zero, check_weight
from racecar.rules.registry import Rules
from racecar.watch.inputs import batch_size

_MAX_TIMES = 10**9


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings of a reverse pass, as :class:`racecar.Racecar` documents them."""

    mode: str = "layerwise"
    weight: Weight = 0.001
    scale: str = "relative"
    fraction: float = 1.0
    input_activation: Activation | None = None
    gradient: str | None = None
    """As the user gave it; None: the mode's default."""
    reduction: str = "mean"
    rules: Rules = field(default_factory=dict)
    """The user's rules for this Racecar alone, which override the registered ones."""
    times: int = 1
    """Factor of the weight: k where a schedule runs the reverse pass in every k-th step."""
    reach: str = field(init=False)
    """What the gradient of a term reaches: ``gradient``, or the mode's default if that is None."""
    off: bool = field(init=False)
    """Whether λ is 0 for all layers."""
    share: str = field(init=False)
    """The fraction as text. Once torch.compile has seen two different numbers here, it makes the number an input of its
    graph, by which no slice can be cut; a text stays a constant."""

    def __post_init__(self) -> None:
        known = {"mode": MODES, "scale": SCALES, "gradient": GRADIENTS, "reduction": REDUCTIONS}
        for name, values in known.items():
            chosen = getattr(self, name)
            if (not isinstance(chosen, str) or chosen not in values) and (name, chosen) != ("gradient", None):
                raise ValueError(f"{name} must be one of {', '.join(values)}, not {chosen!r:.80}")
        default = "weights" if self.mode == "linear" else "reverse"
        object.__setattr__(self, "reach", default if self.gradient is None else self.gradient)
        self._check_linear()
        fraction = self.fraction
        if isinstance(fraction, bool) or not isinstance(fraction, Real) or not 0 < fraction <= 1:
            raise ValueError(f"fraction must be a number in (0, 1], not {fraction!r:.80}")
        object.__setattr__(self, "share", repr(float(fraction)))
        object.__setattr__(self, "times", check_times(self.times, "times"))
        check_weight(self.weight)
        if isinstance(self.weight, Mapping):  # a copy: changes of the user's dict would go unnoticed
            object.__setattr__(self, "weight", dict(self.weight))
        object.__setattr__(self, "off", all_zero(self.weight))

    def _check_linear(self) -> None:
        """Raise if a setting has no meaning in mode "linear"."""
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
        """(N, n): the number of samples in the batch, and how many of them the reverse pass sees."""
        size = batch_size(inputs)
        return size, max(1, round(float(self.share) * size))


def check_times(times: int, name: str) -> int:
    """The number as an int; raises, calling it ``name``, unless it is a whole number of at least 1."""
    if isinstance(times, bool) or not isinstance(times, Integral) or times < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {times!r:.80}")
    if times > _MAX_TIMES:
        raise ValueError(f"{name} must be at most {_MAX_TIMES}: so many times the weight may overflow float32")
    return int(times)

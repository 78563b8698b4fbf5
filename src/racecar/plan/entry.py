"""One line of a plan: a weighted operation of the model, and what the reverse pass does with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from racecar.plan.layer import Layer
from racecar.plan.step import Step


@dataclass(frozen=True, eq=False)
class Entry:
    """A weighted operation of the model, and what the reverse pass does with it."""

    name: str
    """The name of the layer: the qualified name of the module that owns the weight."""
    kind: str
    constrained: bool
    """Whether the layer's term is in the loss."""
    source: str
    """"reverse": the step back starts from d'(m+1), the reconstruction of the layer above; "forward": from the forward
    output d(m+1)."""
    reason: str
    """Why the layer is left out, or why its source is "forward"."""
    layer: Layer | None = field(default=None, repr=False)
    """The layer; None for a weighted operation that uses no data."""
    upper: Layer | None = field(default=None, repr=False)
    """The layer above, if the source is "reverse"."""
    steps: tuple[Step, ...] = field(default=(), repr=False)
    """The steps from d(m+1) or d'(m+1) back to d'(m)."""
    passed: bool = field(default=False, repr=False)
    """Whether the reverse pass goes through the layer."""
    needed: bool = field(default=False, repr=False)
    """Whether the term of a constrained layer depends on this layer's d'."""
    alone: bool = field(default=False, repr=False)
    """Whether the term is that of the weighted operation alone, ‖AᵀAh − h‖², as in mode "linear"."""

    def noted(self, note: str) -> Entry:
        """A copy of the entry with ``note`` added to its reason."""
        return replace(self, reason=f"{self.reason}: {note}" if self.reason else note)

    @property
    def d(self) -> int:
        """The number of the value that is compared: d_m, or in mode "linear" h, the input of the operation itself."""
        assert self.layer is not None
        return self.layer.h if self.alone else self.layer.d

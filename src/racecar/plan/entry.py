"""One weighted operation of the model, as a plan treats it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from racecar.plan.layer import Layer
from racecar.plan.step import Step


@dataclass(frozen=True, eq=False)
class Entry:
    """One weighted operation of the model, as the reverse pass treats it."""

    name: str
    kind: str
    constrained: bool
    source: str
    """"reverse": from d'(m+1), the layer above in the reverse pass. "forward": from the forward output d(m+1)."""
    reason: str
    layer: Layer | None = field(default=None, repr=False)
    upper: Layer | None = field(default=None, repr=False)
    """The layer whose d' it starts from, if its source is "reverse"."""
    steps: tuple[Step, ...] = field(default=(), repr=False)
    passed: bool = field(default=False, repr=False)
    """Whether the reverse pass goes through it."""
    needed: bool = field(default=False, repr=False)
    """Whether a constrained layer depends on it."""
    alone: bool = field(default=False, repr=False)
    """Whether its operation alone is compared with its own transpose, as in mode "linear"."""

    def noted(self, note: str) -> Entry:
        """The same with a note beside its reason."""
        return replace(self, reason=f"{self.reason}: {note}" if self.reason else note)

    @property
    def d(self) -> int:
        """The value that is compared: d_m, or h, what the operation itself reads."""
        assert self.layer is not None
        return self.layer.h if self.alone else self.layer.d

"""The reverse pass on every k-th step alone: a slice in time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from racecar.racecar import Racecar
from racecar.way import Choice
from racecar.weights import Weight, check_weight


class Every:
    """Switch the reverse pass on in every k-th step, with k times the weight, and off in the others.

        every = Every(rr, 4)
        for x, y in batches:
            every.step()
            output, loss = rr(x)

    Over k steps the gradient has the expectation that it has without; a step without the reverse pass costs what the
    model alone costs. A compiled Racecar has two graphs then, and makes no third.

    Args:
        rr: its weight is λ from now on, and is set by every step.
        k: 1 leaves all as it is.
    """

    def __init__(self, rr: Racecar, k: int) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"k must be a whole number of at least 1, not {k!r}")
        self.rr, self.k = rr, k
        self.steps = 0
        """Begun so far."""
        self._weight = rr.weight
        self._on, self._off = self._choice(times(self._weight, k)), self._choice(0.0)

    def step(self) -> bool:
        """Before each training step, the first one included; whether the reverse pass is on in it."""
        self.rr.look_back()
        on = self.steps % self.k == 0
        self.steps += 1
        if self.k > 1:
            self.rr._engine.use(self._on if on else self._off)
        return on

    @property
    def weight(self) -> Weight:
        """λ, before it is multiplied by k; what is set here holds from the next step on."""
        return self.rr.weight if self.k == 1 else self._weight

    @weight.setter
    def weight(self, weight: Weight) -> None:
        if self.k == 1:
            self.rr.weight = weight
            return
        check_weight(weight)
        self._on, self._weight = self._choice(times(weight, self.k)), weight

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: how many steps were begun."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in step with a training that was interrupted."""
        self.steps = int(state["steps"])

    def _choice(self, weight: Weight) -> Choice:
        engine = self.rr._engine
        return engine.choice(replace(engine.settings, weight=weight))


def times(weight: Weight, k: int) -> Weight:
    """A weight of any form, k times."""
    if isinstance(weight, Mapping):
        return {pattern: k * one for pattern, one in weight.items()}
    return k * weight

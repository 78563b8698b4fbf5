"""The reverse pass on every k-th step alone: a slice in time."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from racecar.racecar import Racecar
from racecar.reverse.settings import check_times
from racecar.reverse.weights import Weight
from racecar.support.torch_private import before_compile


class Every:
    """Switch the reverse pass on in every k-th step, with k times the weight, and off in the others.

        every = Every(rr, 4)
        for x, y in batches:
            every.step()
            output, loss = rr(x)

    Over k steps the gradient has the expectation that it has without; a step without the reverse pass costs what the
    model alone costs. ``rr.weight`` stays λ, and may be set at any time; in the steps without, ``rr.plan``,
    ``rr.terms`` (of the last step with it) and ``rr.reconstruct`` stay what they were. A compiled Racecar has two
    graphs then, and makes no third. A copy of ``rr``, or one from a file, has no schedule until it is given one.

    A step is what lies between two calls of ``step``. Where gradients are accumulated over micro-batches, let it be one
    micro-batch: call ``step`` before each of them. The accumulated gradient keeps its expectation, and if k divides
    their number, every step of the optimiser has as many reverse passes and costs the same. Called once before each
    step of the optimiser it is as right on average, but the reverse loss is in all micro-batches of one step and in
    none of the k − 1 that follow.

    Args:
        rr: what is switched.
        k: 1 leaves all as it is.
    """

    def __init__(self, rr: Racecar, k: int) -> None:
        if not isinstance(before_compile(rr), Racecar):  # a compiled one will do
            raise TypeError(f"rr must be a Racecar, not {type(rr).__name__}: Every(Racecar(model, x), k)")
        self.rr, self.k = rr, check_every(k)
        self.steps = 0
        """Begun so far."""

    def step(self) -> bool:
        """Before each training step, the first one included; whether the reverse pass is on in it."""
        on = self.steps % self.k == 0
        self.steps += 1
        self.rr.schedule(self.k, on)
        return on

    @property
    def weight(self) -> Weight:
        """λ, before it is multiplied by k: that of ``rr``, a number or a dict as :class:`racecar.Racecar` takes it."""
        return self.rr.weight

    @weight.setter
    def weight(self, weight: Weight) -> None:
        self.rr.weight = weight

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: how many steps were begun."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on in step with a training that was interrupted."""
        try:
            steps = index(state["steps"])
        except (KeyError, TypeError):
            steps = -1
        if steps < 0:
            raise ValueError(f"state must be what Every.state_dict() gave, as {{'steps': 12}}, not {state!r:.80}")
        self.steps = steps


def check_every(k: int) -> int:
    """A number of steps, or an error."""
    return check_times(k, "k")

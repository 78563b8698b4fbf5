"""Run the reverse pass on every k-th training step only, with k times the weight."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from racecar.racecar import Racecar
from racecar.reverse.settings import check_times
from racecar.reverse.weights import Weight
from racecar.support.torch_private import before_compile


class Every:
    """A schedule that runs the reverse pass on every k-th step, with k times the weight, and skips it on the others.

        every = Every(rr, 4)
        for x, y in batches:
            every.step()
            output, loss = rr(x)

    The expected gradient over k steps is the same as without the schedule, and a skipped step costs what the model
    alone costs. ``rr.weight`` stays λ, and may be set at any time. After a skipped step ``rr.terms`` still holds
    the terms of the last step that ran the reverse pass. A compiled Racecar is compiled twice, once with and once
    without the reverse pass. A copied or unpickled ``rr`` has no schedule until it is given one.

    With gradient accumulation, call ``step`` before each micro-batch: the accumulated gradient keeps its expectation,
    and if k divides the number of micro-batches, every optimiser step costs the same. Called once per optimiser step,
    it is right on average, too, but one optimiser step has the reverse loss in all its micro-batches and the next k − 1
    have it in none.

    Args:
        rr: the Racecar to schedule; a compiled one works, too.
        k: steps from one reverse pass to the next; 1: the reverse pass runs in every step.
    """

    def __init__(self, rr: Racecar, k: int) -> None:
        if not isinstance(before_compile(rr), Racecar):  # a compiled one will do
            raise TypeError(f"rr must be a Racecar, not {type(rr).__name__}: Every(Racecar(model, x), k)")
        self.rr, self.k = rr, check_every(k)
        self.steps = 0
        """Number of calls of :meth:`step` so far."""

    def step(self) -> bool:
        """Begin a training step; call it before each one, the first included.

        Returns:
            Whether the reverse pass runs in this step.
        """
        on = self.steps % self.k == 0
        self.steps += 1
        self.rr.schedule(self.k, on)
        return on

    @property
    def weight(self) -> Weight:
        """λ of ``rr``, before it is multiplied by k: a number or a dict, as :class:`racecar.Racecar` takes it."""
        return self.rr.weight

    @weight.setter
    def weight(self, weight: Weight) -> None:
        self.rr.weight = weight

    def state_dict(self) -> dict[str, Any]:
        """The number of steps begun so far, for a checkpoint."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the number of steps from a checkpoint: the reverse pass runs in the same steps as without the break."""
        try:
            steps = index(state["steps"])
        except (KeyError, TypeError):
            steps = -1
        if steps < 0:
            raise ValueError(f"state must be what Every.state_dict() gave, as {{'steps': 12}}, not {state!r:.80}")
        self.steps = steps


def check_every(k: int) -> int:
    """Return k, the steps from one reverse pass to the next; raise unless it is a whole number of at least 1."""
    return check_times(k, "k")

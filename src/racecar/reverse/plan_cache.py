"""The prepared plans of one model, one for each branch that it took so far."""

from __future__ import annotations

import warnings

from racecar.plan.layer_graph import LayerGraph
from racecar.reverse.prepared import PreparedPlan
from racecar.watch.trace import Trace

MAX_PLANS = 256
"""The number of plans that are kept, about 0.1 MB each; the oldest is dropped first."""


class PlanCache:
    """The prepared plans of one model, one for each branch that it took so far.

    Args:
        name: of the model's class, for messages.
    """

    def __init__(self, name: str) -> None:
        self.plans: list[PreparedPlan] = []
        self.latest: PreparedPlan | None = None
        """The plan of the last call."""
        self.clone: frozenset[int] = frozenset()
        """Calls whose outputs the next pass has to clone, because the model changes them in place later; as far as the
        plans so far tell."""
        self._name = name
        self._other_frozen: dict[LayerGraph, dict[tuple[bool, ...], PreparedPlan]] = {}
        """For each branch its plans with other layers frozen: a training may switch between them in every step."""
        self._warned = False

    def find(self, trace: Trace, sliced: bool) -> PreparedPlan | None:
        """The plan of the branch that a pass took; None if the branch is new.

        Args:
            trace: of the pass.
            sliced: whether a slice of the batch will be cut off.
        """
        # The last call's plan first: without gradient, branches that differ only in what runs under no_grad look alike.
        plans = self.plans if self.latest is None else [self.latest, *self.plans]
        return next((prepared for prepared in plans if prepared.layer_graph.match.fits(trace, sliced)), None)

    def add(self, prepared: PreparedPlan) -> None:
        """Add the plan of a new branch; warns once if there are so many that the oldest has to go."""
        if len(self.plans) == MAX_PLANS:
            self._other_frozen.pop(self.plans[0].layer_graph, None)
            if not self._warned:
                self._warned = True
                message = (
                    f"{MAX_PLANS} branches of {self._name} were planned, and there are more: the oldest plans are "
                    "dropped from now on, and a step that takes a new branch costs another forward pass"
                )
                warnings.warn(message, UserWarning, stacklevel=6)
        self.plans = [*self.plans[-MAX_PLANS + 1 :], prepared]
        self.latest = prepared
        self.clone |= frozenset(prepared.layer_graph.positions[value] for value in prepared.in_place)

    def with_frozen(self, prepared: PreparedPlan, frozen: tuple[bool, ...]) -> PreparedPlan | None:
        """The plan of the same branch with other layers frozen; None if there is none yet."""
        return self._other_frozen.get(prepared.layer_graph, {}).get(frozen)

    def replace(self, old: PreparedPlan, new: PreparedPlan) -> None:
        """Use ``new``, with other layers frozen, instead of ``old``, which is kept for later."""
        variants = self._other_frozen.setdefault(old.layer_graph, {})
        variants[old.frozen], variants[new.frozen] = old, new
        self.plans = [new if prepared is old else prepared for prepared in self.plans]

    def replace_all(self, plans: list[PreparedPlan]) -> None:
        """Use plans of the same branches with other settings."""
        self.plans, self._other_frozen = plans, {}
        if self.latest is not None:
            layer_graph = self.latest.layer_graph
            self.latest = next(prepared for prepared in plans if prepared.layer_graph is layer_graph)

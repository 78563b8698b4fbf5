"""Recognition of forward passes in eager mode that a plan is valid for: those with the same calls and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from racecar.plan.call_order import has_argument
from racecar.plan.graph import Op
from racecar.rules.batch_dim import FIXED, BatchDim
from racecar.support.torch_private import own_parameters
from racecar.watch.owners import Owner
from racecar.watch.trace import Trace


class Matcher:
    """Recognises forward passes in eager mode that one plan is valid for.

    Args:
        weighted: the weighted operations of the plan.
        batch: where the samples run in the values of the planned pass.
        batch_size: of the planned pass.
        trace: of the planned pass.
    """

    def __init__(
        self, weighted: Sequence[Op], batch: Mapping[int, BatchDim | None], batch_size: int, trace: Trace
    ) -> None:
        self.signature = trace.signature
        self.functions = tuple({id(call.func): call.func for call in trace.calls}.values())
        """All functions that the planned pass called."""
        self._weighted, self._grads = weighted, trace.grads
        self._several_samples = batch_size > 1
        self._fixed = any(place is not None and place.outer_of == FIXED for place in batch.values())
        self._features = [x.shape[1:] for x in trace.inputs]
        self._layouts = [x.layout for x in trace.inputs]

    def fits(self, trace: Trace, sliced: bool) -> bool:
        """Whether a pass made the calls of the planned pass with the same weights.

        ``sliced``: whether the reverse pass sees a slice of the batch.
        """
        if trace.signature != self.signature or (sliced and not self.can_slice(trace.inputs)):
            return False
        if [x.layout for x in trace.inputs] != self._layouts or (trace.grad and trace.grads != self._grads):
            return False
        positions = list(trace.links)
        for op in self._weighted:
            owner, at = op.owner, positions[op.ordinal]
            if owner is None or op.module is not None:
                continue
            weight = own_parameters(owner.holder).get(owner.parameter)
            if op.lookup is not None or owner.derived:
                source = at if op.lookup is None else positions[op.lookup]
                used = any(True for _ in trace.roots(trace.beside_data(source), {id(weight)}))
                if owner.derived and trace.grad and op.grad:
                    used = used and _same_gradients(trace, at, owner)
            else:
                used = has_argument(trace.calls[at], weight)
            if not used:
                return False
        return True

    def can_slice(self, inputs: Sequence[Tensor]) -> bool:
        """Whether the plan knows where the samples of these inputs run.

        It does not if it was made with a single sample. Where a place depends on sizes in an unknown way, the inputs
        must have the sizes of the planned pass.
        """
        return self._several_samples and (not self._fixed or [x.shape[1:] for x in inputs] == self._features)


def _same_gradients(trace: Trace, call: int, owner: Owner) -> bool:
    """Whether the gradient of a call with a computed weight reaches the same parameters as in the planned pass."""
    owners = (owner, *owner.also)
    parameters = [(own_parameters(one.holder).get(one.parameter), not one.cut_off) for one in owners]
    ids = {id(parameter) for parameter, _ in parameters}
    reached = {id(parameter) for parameter in trace.roots(trace.beside_data(call), ids, with_grad=True)}
    return all((id(parameter) in reached) == before for parameter, before in parameters)

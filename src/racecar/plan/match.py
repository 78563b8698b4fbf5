"""Does a pass take the way of a plan? In eager mode by what uses what, under torch.compile call by call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.plan.batch import FIXED, BatchDim
from racecar.plan.layer import Layer
from racecar.watch.calls import Call, among, tensors
from racecar.watch.trace import Trace, leading, rooted

_SPELLINGS = ((F.rms_norm, torch.rms_norm),)
"""Functions that torch.compile shows under another name."""


def same(planned: Any, shown: Any) -> bool:
    """Whether two functions are one, also where torch.compile renames it."""
    return planned is shown or any(planned is a and shown is b for a, b in _SPELLINGS)


class Matcher:
    """Recognises passes through a model that take the way of one plan.

    Args:
        layers: of the plan.
        ordinals: the positions of its calls that use data.
        batch: where the samples run in its values.
        batch_size: of the planned pass.
        trace: of the planned pass.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        ordinals: Sequence[int],
        batch: Mapping[int, BatchDim | None],
        batch_size: int,
        trace: Trace,
    ) -> None:
        self.signature, self.batch_size = trace.signature, batch_size
        self._weighted = [op for layer in layers for op in layer.op.members or (layer.op,)]
        self._fixed = any(place is not None and place.by == FIXED for place in batch.values())
        self._features = [x.shape[1:] for x in trace.inputs]
        self.functions = tuple({id(call.func): call.func for call in trace.calls}.values())
        """All that the planned pass called."""
        # What torch.compile shows is compared call by call: functions, their ordinals, a number for each function.
        self._length = len(ordinals)
        ordinal = {position: i for i, position in enumerate(ordinals)}
        alive = leading(trace.calls)
        self._all_lead = all(alive)
        rows = [i for i, flag in enumerate(rooted(trace.calls)) if flag and alive[i]]
        self._funcs = [trace.calls[i].func for i in rows]
        self._ordinal_at = [ordinal.get(i, -1) for i in rows]
        numbers: dict[Any, int] = {}
        self._number = [numbers.setdefault(func, len(numbers)) for func in self._funcs]

    def fits(self, trace: Trace, sliced: bool) -> bool:
        """Whether a pass took this plan's way, with the same weights."""
        if trace.signature != self.signature or (sliced and not self.can_slice(trace.inputs)):
            return False
        positions = list(trace.links)
        for op in self._weighted:
            owner, at = op.owner, positions[op.ordinal]
            if owner is None or op.module is not None:
                continue
            weight, call = owner.holder._parameters.get(owner.parameter), trace.calls[at]
            if op.picked is not None:
                used = any(True for _ in trace.roots(positions[op.picked], {id(weight)}))
            elif owner.derived:
                used = any(True for _ in trace.roots(at, {id(weight)}))
            else:
                used = any(one is weight for _, one in tensors(call.args, call.kwargs))
            if not used:
                return False
        return True

    def can_slice(self, inputs: Sequence[Tensor]) -> bool:
        """Whether what the plan knows of the batch holds for these inputs.

        A single sample shows nothing; and where a place depends on other sizes, nobody knows how, these must be equal.
        """
        if self.batch_size == 1:
            return False
        return not self._fixed or [x.shape[1:] for x in inputs] == self._features

    def align(self, calls: Sequence[Call]) -> list[Call | None] | None:
        """Match the calls that torch.compile shows with the plan's; None if they are another way.

        The compiler hides some functions, always the same ones: their calls stay None.
        """
        found: list[Call | None] = [None] * self._length
        shown, hidden = [False] * len(self._funcs), [False] * len(self._funcs)
        at = 0
        alive = [True] * len(calls) if self._all_lead else leading(calls)
        for call, flag, leads in zip(calls, rooted(calls), alive, strict=True):
            if not flag or not leads:
                continue
            while at < len(self._funcs) and not same(self._funcs[at], call.func):
                hidden[self._number[at]] = True
                at += 1
            if at == len(self._funcs):
                return None
            shown[self._number[at]] = True
            if self._ordinal_at[at] >= 0:
                found[self._ordinal_at[at]] = call
            at += 1
        for rest in range(at, len(self._funcs)):
            hidden[self._number[rest]] = True
        if any(s and h for s, h in zip(shown, hidden, strict=True)):
            return None
        return found if self._same_weights(found) else None

    def _same_weights(self, calls: Sequence[Call | None]) -> bool:
        """Whether the calls use the weights that the plan names, as far as they are parameters themselves."""
        for op in self._weighted:
            owner, call = op.owner, calls[op.ordinal]
            if owner is None or owner.derived or op.picked is not None or call is None:
                continue
            weight = owner.holder._parameters.get(owner.parameter)
            if not among(weight, call.args) and not any(one is weight for _, one in tensors(call.args, call.kwargs)):
                return False
        return True

"""The order of a plan's calls, by which passes that torch.compile traces are recognised, call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.plan.graph import Op
from racecar.support.torch_private import own_parameters
from racecar.watch.calls import Call, among, tensors
from racecar.watch.relevant import leads_to_numbers, makes_number, may_use_data
from racecar.watch.trace import Trace

_COMPILED_AS = ((F.rms_norm, torch.rms_norm),)
"""Functions, each with the one that torch.compile replaces it by."""


class CallOrder:
    """The calls of a planned pass in their order, to compare with those of a pass that torch.compile traces.

    Args:
        trace: of the planned pass.
        weighted: the weighted operations of the plan.
    """

    def __init__(self, trace: Trace, weighted: Sequence[Op]) -> None:
        owners = [(op.ordinal, op.owner) for op in weighted if op.owner is not None and op.lookup is None]
        self._weights = [(i, owner.holder, owner.parameter) for i, owner in owners if not owner.derived]
        """The calls that use a parameter itself: (ordinal, module that holds the parameter, its name)."""
        self._grads = trace.grads
        alive = leads_to_numbers(trace.calls)
        dead = [call.func for call, flag in zip(trace.calls, alive, strict=True) if not flag]
        self._dead, self._dead_calls = tuple({id(func): func for func in dead}.values()), len(dead)
        """The functions of calls that lead to no floating-point numbers, such as a count of batches; how many calls."""
        others = [call for call, flag in zip(trace.calls, alive, strict=True) if flag and among(call.func, self._dead)]
        self._dead_by_function = all(makes_number(call) for call in others)
        """Whether a call leads to no numbers exactly if its function is in ``_dead`` and its output holds none."""
        compared = [i for i, flag in enumerate(may_use_data(trace.calls)) if flag and alive[i]]
        ordinal = {position: i for i, position in enumerate(trace.links)}
        self._funcs = [trace.calls[i].func for i in compared]
        """The functions of the calls that are compared."""
        self._ordinals = [ordinal.get(i, -1) for i in compared]
        """The ordinals of the compared calls; −1: the call uses no data."""
        numbers: dict[Any, int] = {}
        self._func_numbers = [numbers.setdefault(func, len(numbers)) for func in self._funcs]
        """The functions of the compared calls as numbers, equal for equal functions."""

    def align(self, calls: Sequence[Call], grad: bool) -> list[Call | None] | None:
        """The calls of a pass by their ordinal in the planned pass; None if it does not make the same calls.

        The compiler hides all calls of some functions: None stands in their place. ``grad``: whether the pass runs with
        gradient.
        """
        aligned = self._align(calls)
        if aligned is not None and grad:
            for call, before in zip(aligned, self._grads, strict=True):
                if call is not None and call.grad is not before:
                    return None
        return aligned

    def _align(self, calls: Sequence[Call]) -> list[Call | None] | None:
        """``align`` without the check of gradients: leaves out the calls that lead to no numbers."""
        if not self._dead:
            return self._match(calls)
        aligned = None
        if self._dead_by_function:  # then the compiler need not trace through the arguments of all calls
            alive = [call for call in calls if not among(call.func, self._dead) or makes_number(call)]
            aligned = self._match(alive) if len(calls) - len(alive) == self._dead_calls else None
        if aligned is None:
            aligned = self._match([call for call, leads in zip(calls, leads_to_numbers(calls), strict=True) if leads])
        return aligned

    def _match(self, calls: Sequence[Call]) -> list[Call | None] | None:
        """``align`` for calls that all lead to numbers."""
        aligned: list[Call | None] = [None] * len(self._grads)
        funcs, ordinals = self._funcs, self._ordinals
        skipped: list[int] = []
        at, end = 0, len(funcs)
        for call, flag in zip(calls, may_use_data(calls), strict=True):
            if not flag:
                continue
            while at < end and funcs[at] is not call.func and not same(funcs[at], call.func):
                skipped.append(at)
                at += 1
            if at == end:
                return None
            if ordinals[at] >= 0:
                aligned[ordinals[at]] = call
            at += 1
        skipped += range(at, end)
        hidden = {self._func_numbers[i] for i in skipped}
        if hidden and any(self._func_numbers[i] in hidden and i not in skipped for i in range(end)):
            return None
        return aligned if self._same_weights(aligned) else None

    def _same_weights(self, calls: Sequence[Call | None]) -> bool:
        """Whether the calls use the same parameters as in the planned pass; computed weights are not compared."""
        for ordinal, holder, name in self._weights:
            call = calls[ordinal]
            if call is not None and not has_argument(call, own_parameters(holder).get(name)):
                return False
        return True


def has_argument(call: Call, weight: Tensor | None) -> bool:
    """Whether a weight is among the arguments of a call, as in most calls the second one."""
    if len(call.args) > 1 and call.args[1] is weight:
        return True
    return any(tensor is weight for _, tensor in tensors(call.args, call.kwargs))


def same(planned: Any, compiled: Any) -> bool:
    """Whether two functions are the same, or torch.compile replaces the first one by the second."""
    return planned is compiled or any(planned is a and compiled is b for a, b in _COMPILED_AS)

"""Does a pass take the way of a plan? In eager mode by what uses what, under torch.compile call by call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.plan.layer import Layer
from racecar.rules.batch_dim import FIXED, BatchDim
from racecar.support.torch_private import own_parameters
from racecar.watch.calls import Call, among, tensors
from racecar.watch.owners import Owner
from racecar.watch.relevant import leads_to_numbers, makes_number, may_use_data
from racecar.watch.trace import Trace

_SPELLINGS = ((F.rms_norm, torch.rms_norm),)
"""Functions that torch.compile shows under another name."""


def same(planned: Any, shown: Any) -> bool:
    """Whether two functions are one, also where torch.compile renames it."""
    return planned is shown or any(planned is a and shown is b for a, b in _SPELLINGS)


def _reaches(trace: Trace, call: int, owner: Owner) -> bool:
    """Whether the gradient of a call reaches those parameters of a computed weight that it reached while planning."""
    parameters = [(own_parameters(one.holder).get(one.parameter), not one.cut_off) for one in (owner, *owner.also)]
    known = {id(one) for one, _ in parameters}
    reached = {id(one) for one in trace.roots(trace.beside_data(call), known, with_grad=True)}
    return all((id(one) in reached) == before for one, before in parameters)


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
        self._grads = trace.grads
        self._weighted = [op for layer in layers for op in layer.op.members or (layer.op,)]
        owners = [(op.ordinal, op.owner) for op in self._weighted if op.owner is not None and op.picked is None]
        self._direct = [(i, owner.holder, owner.parameter) for i, owner in owners if not owner.derived]
        """Calls, by ordinal, that use a parameter itself."""
        self._fixed = any(place is not None and place.outer_of == FIXED for place in batch.values())
        self._features = [x.shape[1:] for x in trace.inputs]
        self._layouts = [x.layout for x in trace.inputs]
        self.functions = tuple({id(call.func): call.func for call in trace.calls}.values())
        """All that the planned pass called."""
        # What torch.compile shows is compared call by call: functions, their ordinals, a number for each function.
        self._length = len(ordinals)
        ordinal = {position: i for i, position in enumerate(ordinals)}
        alive = leads_to_numbers(trace.calls)
        dead = [call.func for call, flag in zip(trace.calls, alive, strict=True) if not flag]
        self._dead = tuple({id(func): func for func in dead}.values())
        """Functions of calls that lead to no number, such as the count of a batch norm's batches."""
        self._deaths = len(dead)
        others = [call for call, flag in zip(trace.calls, alive, strict=True) if flag and among(call.func, self._dead)]
        self._told = all(makes_number(call) for call in others)
        """Whether the function of a call, and whether it makes a number, tell if it is one of these."""
        rows = [i for i, flag in enumerate(may_use_data(trace.calls)) if flag and alive[i]]
        self._funcs = [trace.calls[i].func for i in rows]
        self._ordinal_at = [ordinal.get(i, -1) for i in rows]
        numbers: dict[Any, int] = {}
        self._number = [numbers.setdefault(func, len(numbers)) for func in self._funcs]

    def fits(self, trace: Trace, sliced: bool) -> bool:
        """Whether a pass took this plan's way, with the same weights."""
        if trace.signature != self.signature or (sliced and not self.can_slice(trace.inputs)):
            return False
        if [x.layout for x in trace.inputs] != self._layouts or (trace.grad and trace.grads != self._grads):
            return False
        positions = list(trace.links)
        for op in self._weighted:
            owner, at = op.owner, positions[op.ordinal]
            if owner is None or op.module is not None:
                continue
            weight, call = own_parameters(owner.holder).get(owner.parameter), trace.calls[at]
            if op.picked is not None:
                used = any(True for _ in trace.roots(trace.beside_data(positions[op.picked]), {id(weight)}))
            elif owner.derived:
                used = any(True for _ in trace.roots(trace.beside_data(at), {id(weight)}))
            else:
                used = any(one is weight for _, one in tensors(call.args, call.kwargs))
            if not used or (owner.derived and trace.grad and op.grad and not _reaches(trace, at, owner)):
                return False
        return True

    def can_slice(self, inputs: Sequence[Tensor]) -> bool:
        """Whether what the plan knows of the batch holds for these inputs.

        A single sample shows nothing; and where a place depends on other sizes, nobody knows how, these must be equal.
        """
        if self.batch_size == 1:
            return False
        return not self._fixed or [x.shape[1:] for x in inputs] == self._features

    def align(self, calls: Sequence[Call], grad: bool) -> list[Call | None] | None:
        """Match the calls that torch.compile shows with the plan's; None if they are another way.

        The compiler hides some functions, always the same ones: their calls stay None. ``grad``: whether the pass as a
        whole runs with gradient.
        """
        found = self._align(calls)
        if found is not None and grad:
            for call, before in zip(found, self._grads, strict=True):
                if call is not None and call.grad is not before:
                    return None
        return found

    def _align(self, calls: Sequence[Call]) -> list[Call | None] | None:
        if not self._dead:
            return self._follow(calls)
        found = None
        if self._told:  # the compiler need not trace its way through the arguments of all calls
            some = [call for call in calls if not among(call.func, self._dead) or makes_number(call)]
            found = self._follow(some) if len(calls) - len(some) == self._deaths else None
        if found is None:
            found = self._follow([call for call, leads in zip(calls, leads_to_numbers(calls), strict=True) if leads])
        return found

    def _follow(self, calls: Sequence[Call]) -> list[Call | None] | None:
        found: list[Call | None] = [None] * self._length
        funcs, ordinals = self._funcs, self._ordinal_at
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
                found[ordinals[at]] = call
            at += 1
        skipped += range(at, end)
        hidden = {self._number[i] for i in skipped}
        if hidden and any(self._number[i] in hidden and i not in skipped for i in range(end)):
            return None
        return found if self._same_weights(found) else None

    def _same_weights(self, calls: Sequence[Call | None]) -> bool:
        """Whether the calls use the weights that the plan names, as far as they are parameters themselves."""
        for ordinal, holder, name in self._direct:
            weight, call = own_parameters(holder).get(name), calls[ordinal]
            if call is None or (len(call.args) > 1 and call.args[1] is weight):
                continue
            if not any(one is weight for _, one in tensors(call.args, call.kwargs)):
                return False
        return True

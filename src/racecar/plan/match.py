"""Recognition of forward passes that a plan is valid for: those that make the same calls with the same weights.

In eager mode the links between calls are compared, under torch.compile the sequence of calls.
"""

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
"""Functions, each with the one that torch.compile replaces it by."""


def same(planned: Any, compiled: Any) -> bool:
    """Whether two functions are the same, or torch.compile replaces the first one by the second."""
    return planned is compiled or any(planned is a and compiled is b for a, b in _SPELLINGS)


def _reaches(trace: Trace, call: int, owner: Owner) -> bool:
    """Whether the gradient of a call with a computed weight reaches the same parameters as in the planned pass."""
    owners = (owner, *owner.also)
    parameters = [(own_parameters(one.holder).get(one.parameter), not one.cut_off) for one in owners]
    ids = {id(parameter) for parameter, _ in parameters}
    reached = {id(parameter) for parameter in trace.roots(trace.beside_data(call), ids, with_grad=True)}
    return all((id(parameter) in reached) == before for parameter, before in parameters)


class Matcher:
    """Recognises forward passes of a model that one plan is valid for.

    Args:
        layers: of the plan.
        ordinals: the positions, among all calls of the planned pass, of the calls that use data.
        batch: where the samples run in the values of the planned pass.
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
        owners = [(op.ordinal, op.owner) for op in self._weighted if op.owner is not None and op.lookup is None]
        self._direct = [(i, owner.holder, owner.parameter) for i, owner in owners if not owner.derived]
        """The calls that use a parameter itself: (ordinal, module that holds the parameter, its name)."""
        self._fixed = any(place is not None and place.outer_of == FIXED for place in batch.values())
        self._features = [x.shape[1:] for x in trace.inputs]
        self._layouts = [x.layout for x in trace.inputs]
        self.functions = tuple({id(call.func): call.func for call in trace.calls}.values())
        """All functions that the planned pass called."""
        # For passes under torch.compile: the functions of the calls to compare, their ordinals, a number per function.
        self._length = len(ordinals)
        ordinal = {position: i for i, position in enumerate(ordinals)}
        alive = leads_to_numbers(trace.calls)
        dead = [call.func for call, flag in zip(trace.calls, alive, strict=True) if not flag]
        self._dead = tuple({id(func): func for func in dead}.values())
        """Functions of calls that do not affect the output, such as counting the batches of a batch norm."""
        self._dead_calls = len(dead)
        others = [call for call, flag in zip(trace.calls, alive, strict=True) if flag and among(call.func, self._dead)]
        self._dead_by_function = all(makes_number(call) for call in others)
        """Whether a call is one of these if its function is in ``_dead`` and it makes no number."""
        rows = [i for i, flag in enumerate(may_use_data(trace.calls)) if flag and alive[i]]
        self._funcs = [trace.calls[i].func for i in rows]
        self._ordinal_at = [ordinal.get(i, -1) for i in rows]
        numbers: dict[Any, int] = {}
        self._number = [numbers.setdefault(func, len(numbers)) for func in self._funcs]

    def fits(self, trace: Trace, sliced: bool) -> bool:
        """Whether a pass in eager mode made the calls of the planned pass with the same weights.

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
            weight, call = own_parameters(owner.holder).get(owner.parameter), trace.calls[at]
            if op.lookup is not None:
                used = any(True for _ in trace.roots(trace.beside_data(positions[op.lookup]), {id(weight)}))
            elif owner.derived:
                used = any(True for _ in trace.roots(trace.beside_data(at), {id(weight)}))
            else:
                used = any(tensor is weight for _, tensor in tensors(call.args, call.kwargs))
            if not used or (owner.derived and trace.grad and op.grad and not _reaches(trace, at, owner)):
                return False
        return True

    def can_slice(self, inputs: Sequence[Tensor]) -> bool:
        """Whether the plan knows where the samples of these inputs run.

        It does not if it was made with a single sample. Where a place depends on sizes in an unknown way, the inputs
        must have the sizes of the planned pass.
        """
        if self.batch_size == 1:
            return False
        return not self._fixed or [x.shape[1:] for x in inputs] == self._features

    def align(self, calls: Sequence[Call], grad: bool) -> list[Call | None] | None:
        """The calls of a pass under torch.compile in the order of the planned pass; None if they do not match.

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
        """``align`` without the check of gradients: leaves out the calls that do not affect the output."""
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
        """``align`` for calls that all affect the output."""
        aligned: list[Call | None] = [None] * self._length
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
                aligned[ordinals[at]] = call
            at += 1
        skipped += range(at, end)
        hidden = {self._number[i] for i in skipped}
        if hidden and any(self._number[i] in hidden and i not in skipped for i in range(end)):
            return None
        return aligned if self._same_weights(aligned) else None

    def _same_weights(self, calls: Sequence[Call | None]) -> bool:
        """Whether the calls use the same parameters as in the planned pass; computed weights are not compared."""
        for ordinal, holder, name in self._direct:
            weight, call = own_parameters(holder).get(name), calls[ordinal]
            if call is None or (len(call.args) > 1 and call.args[1] is weight):
                continue
            if not any(tensor is weight for _, tensor in tensors(call.args, call.kwargs)):
                return False
        return True

"""One step's work: watch the forward pass, find its plan, run it backwards, sum the terms."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from racecar.errors import NothingToReverse
from racecar.plan.from_model import layer_graph_of, warn_about
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.plan import Plan
from racecar.plan.routes import warn_bypassed
from racecar.reverse import terms, weights
from racecar.reverse.input_activation import check_on_inputs
from racecar.reverse.mask_arguments import CallMask, MaskArguments
from racecar.reverse.prepared import Outcome, PreparedPlan
from racecar.reverse.reverse_statistics import ReverseStatistics
from racecar.reverse.settings import Settings
from racecar.support.compiling import capturing, compiling
from racecar.support.torch_private import map_tensors
from racecar.watch import nested
from racecar.watch.compiled import CompiledWatch
from racecar.watch.dry_run import RngState, untouched, watch_forward
from racecar.watch.guards import check_model, check_sharding, fusible, reshard, takes_fused_path
from racecar.watch.inputs import batch_tensors, input_tensors
from racecar.watch.trace import Trace

_CUT_OFF = {"no_grad": "runs under no_grad in the model", "detached": "has a detached weight"}
MAX_PLANS = 256
"""Ways through one model that are remembered, of about 0.1 MB each; the oldest goes first."""


class Engine:
    """A model with the ways that it was seen to take.

    Args:
        model, settings: what is reversed, and how.
        statistics: of the reverse data, kept by training calls and used in evaluation; None: there are none.
    """

    def __init__(self, model: nn.Module, settings: Settings, statistics: ReverseStatistics | None = None) -> None:
        self.model, self.settings, self.statistics = model, settings, statistics
        self.fusible = fusible(model)
        self.masks = MaskArguments(model)
        self.off = weights.all_zero(settings.weight)
        """Whether λ is 0 for all layers."""
        self.resting = False
        """Whether a schedule leaves this step out."""
        self.plans: list[PreparedPlan] = []
        self.latest: PreparedPlan | None = None
        self.forgets = False
        """Whether there were more ways than are remembered."""
        self.keep: frozenset[int] = frozenset()
        """Calls of the next pass, as far as we can tell, whose output is changed in place later."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        other = Engine.__new__(Engine)
        memo[id(self)] = other
        # Functions are what they are: those behind properties, such as Tensor.mT, Python could not even copy.
        memo.update({id(func): func for one in self.plans for func in one.layer_graph.match.functions})
        other.__dict__.update(copy.deepcopy(self.__dict__, memo))
        other.schedule(1, True)  # that belongs to the one that was copied
        return other

    def __getstate__(self) -> dict[str, Any]:
        # A plan holds functions that do not survive in a file: a pickled Racecar plans anew in its first call.
        fresh: dict[str, Any] = {"plans": [], "latest": None, "keep": frozenset(), "resting": False}
        return {**self.__dict__, **fresh, "settings": replace(self.settings, times=1)}

    def start(self, args: Sequence[Any], kwargs: Mapping[str, Any], train: bool = True) -> None:
        """Plan a model for the first time; refuse one that has nothing to reverse.

        Args:
            args, kwargs: of a call.
            train: whether it is to be trained: one whose layers are all frozen is refused, too.
        """
        layer_graph = layer_graph_of(self.model, args, kwargs, self.settings.rules)
        reshard(self.model)
        prepared = self.add(layer_graph)
        if train and not self.off and not prepared.constrained and any(prepared.frozen):
            cut_off = sorted({layer.cut_off for layer in layer_graph.layers if layer.cut_off})
            others = "".join(f" or {_CUT_OFF[one]}" for one in cut_off)
            raise NothingToReverse(
                f"every layer of {type(self.model).__name__} that could be constrained is frozen (requires_grad is "
                f"False){others}: the loss would train nothing; unfreeze a layer, or look into the model with "
                "racecar.inspect"
            )
        if self.settings.scale == "anchored":
            terms.input_energy([nested.padded(x) for x in input_tensors(args, kwargs)])
        if self.settings.input_activation is not None:
            check_on_inputs(self.settings.input_activation, layer_graph, input_tensors(args, kwargs), self.model)

    def add(self, layer_graph: LayerGraph) -> PreparedPlan:
        """Remember a plan, and say what it has to leave out; the first one must have something to reverse."""
        prepared = self.work_out(layer_graph, self.settings)
        warn_about(layer_graph)
        warn_bypassed(prepared.plan)
        if not self.plans:
            self._check(prepared)
        if len(self.plans) == MAX_PLANS and not self.forgets:
            self.forgets = True
            message = (
                f"{MAX_PLANS} ways through {type(self.model).__name__} were planned, and there are more: the oldest "
                "are forgotten from now on, and a step that takes a new one costs another forward pass"
            )
            warnings.warn(message, UserWarning, stacklevel=4)
        self.plans = [*self.plans[-MAX_PLANS + 1 :], prepared]
        self.latest = prepared
        self.keep |= frozenset(layer_graph.positions[value] for value in prepared.copies)
        return prepared

    def work_out(
        self, layer_graph: LayerGraph, settings: Settings, frozen: Sequence[bool] | None = None
    ) -> PreparedPlan:
        """A plan with settings, and room for the statistics of its batch norms."""
        prepared = PreparedPlan(layer_graph, settings, frozen)
        if self.statistics is not None:
            self.statistics.add(prepared.places)
        return prepared

    def set(self, settings: Settings) -> None:
        """Other settings for the same plans: all are worked out before anything changes."""
        weights.check_patterns(settings.weight, [prepared.layer_graph for prepared in self.plans], self.model)
        plans = [self.work_out(prepared.layer_graph, settings, prepared.frozen_now()) for prepared in self.plans]
        if plans and settings.mode != self.settings.mode:
            self._check(plans[0])
        before = self.latest
        self.settings, self.off, self.plans = settings, weights.all_zero(settings.weight), plans
        if before is not None:
            self.latest = next(prepared for prepared in plans if prepared.layer_graph is before.layer_graph)
            if self.latest.plan.bypassed != before.plan.bypassed:
                warn_bypassed(self.latest.plan)

    def schedule(self, times: int, on: bool) -> None:
        """In this step with so many times the weight, or not at all."""
        if on not in (True, False):
            raise TypeError(f"on must be True or False, not {on!r:.80}")
        if self.settings.times != times:
            self.set(replace(self.settings, times=times))
        self.resting = not on

    def _check(self, prepared: PreparedPlan) -> None:
        """Refuse a model that has nothing to reverse, or nothing that the settings choose."""
        layers, settings, name = prepared.layer_graph.layers, prepared.settings, type(self.model).__name__
        if not layers:
            why = "".join(f"; {one.name}: {one.reason}" for one in prepared.layer_graph.coverage.uncovered[:3])
            raise NothingToReverse(f"{name} has no weighted layer (linear, convolution, …) that sees its input{why}")
        if all(layer.problem for layer in layers):
            raise NothingToReverse(f"no layer of {name} has a rule; add one with @racecar.rules.register(...)")
        weights.check_patterns(settings.weight, [prepared.layer_graph], self.model)
        left_out = weights.unmatched(settings.weight, [layer.names for layer in layers])
        off = weights.all_zero(settings.weight)
        if not prepared.constrained and not any(prepared.frozen) and (left_out or not off):
            raise NothingToReverse(
                f"weight {settings.weight!r} and mode {settings.mode!r} leave every layer of {name} that has a rule out"
            )

    def run(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], look: bool = False, mask: Tensor | None = None
    ) -> tuple[Any, Outcome]:
        """The model's output, and its racecar loss with the terms and, if asked for, what shows whether it lives.
        ``mask``: of ours, True where a position of the input is no padding."""
        given = self.masks.find(mask, args, kwargs)
        if compiling():
            return self._run_compiled(args, kwargs, given)
        # A way that was never seen may have to be watched again, from the same RNG state.
        # While a CUDA graph is being recorded there is no such state to look at; the way is known then.
        start = RngState(self.model) if self.model.training and not capturing() else None
        if takes_fused_path(self.fusible):  # watched, torch would not fuse: leave that pass without a trace
            with untouched(self.model):
                _, trace = watch_forward(self.model, args, kwargs, self.keep)
            output = self.model(*args, **kwargs)
        else:
            output, trace = watch_forward(self.model, args, kwargs, self.keep)
        self.masks.refuse_ignored(kwargs, trace)
        prepared, trace = self.prepared_for(trace, args, kwargs, start)
        if not prepared.constrained:
            return output, Outcome(no_loss(trace.inputs), {}, None)
        tape, yardstick = prepared.tape([trace.calls[i] for i in trace.links], trace.kept_inputs, given)
        del trace  # frees the activations that the reverse pass does not need
        return output, prepared.loss(tape, yardstick, self.statistics, look)

    def prepared_for(
        self,
        trace: Trace,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        start: RngState | None = None,
        whole: bool = False,
    ) -> tuple[PreparedPlan, Trace]:
        """The way that a pass took, planned anew if it was never seen; and its trace, with all that is needed."""
        size, samples = self.settings.slice_of(trace.inputs)
        sliced = samples < size and not whole
        # The way of the call before first: without gradient all ways fit that differ in what runs under no_grad.
        known = self.plans if self.latest is None else [self.latest, *self.plans]
        prepared = next((prepared for prepared in known if prepared.layer_graph.match.fits(trace, sliced)), None)
        if prepared is None:
            check_sharding(self.model)
            rules = self.settings.rules
            found = layer_graph_of(self.model, args, kwargs, rules, start)
            # A way that is random differs in the dry pass: plan what was seen, without rules for whole modules.
            prepared = self.add(found if found.match.fits(trace, sliced) else LayerGraph(self.model, trace, rules))
        elif (flags := prepared.frozen_now()) != prepared.frozen:
            prepared = self._refreeze(prepared, flags)
        self.latest = prepared
        if whole and self.off:  # what has no λ is rebuilt as if every layer had one
            prepared = PreparedPlan(prepared.layer_graph, replace(self.settings, weight=1.0), prepared.frozen)
        positions = frozenset(trace.position(value) for value in prepared.copies)
        if not positions <= trace.keep:  # these values are gone by now: watch the same way again, leaving no trace
            with untouched(self.model, start):
                _, trace = watch_forward(self.model, args, kwargs, positions)
            if not prepared.layer_graph.match.fits(trace, sliced):
                raise RuntimeError(
                    f"{type(self.model).__name__} takes another way at random and changes activations in place, so "
                    "that they cannot be compared; use operations that are not in place"
                )
        self.keep |= positions
        return prepared, trace

    def _refreeze(self, prepared: PreparedPlan, flags: tuple[bool, ...]) -> PreparedPlan:
        """The same way with other layers frozen; kept, as a training may go back and forth in every step."""
        new = prepared.siblings.get(flags) or self.work_out(prepared.layer_graph, self.settings, flags)
        prepared.siblings[flags], new.siblings = new, prepared.siblings
        self.plans = [new if one is prepared else one for one in self.plans]
        return new

    def _run_compiled(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], given: CallMask | None
    ) -> tuple[Any, Outcome]:
        """The same while torch.compile traces: positions differ, so calls are matched in order."""
        inputs = batch_tensors(args, kwargs)
        funcs: list[Any] = []
        for prepared in self.plans:
            funcs += prepared.layer_graph.in_place.functions
        kept = (
            [x.clone() for x in inputs]
            if any(prepared.layer_graph.in_place.of_input for prepared in self.plans)
            else inputs
        )
        graphs = [prepared.layer_graph for prepared in self.plans]
        watch = CompiledWatch(tuple(funcs), any(one.recurrent for one in graphs), any(one.lists for one in graphs))
        if takes_fused_path(self.fusible):  # torch does not fuse where a gradient is asked for
            with torch.enable_grad(), watch:
                output = self.model(*args, **kwargs)
            output = map_tensors(Tensor.detach, output)
        else:
            with watch:
                output = self.model(*args, **kwargs)
        for prepared in self.plans:
            calls = prepared.layer_graph.call_order.align(watch.calls, watch.grad)
            if calls is not None:
                if prepared.frozen_now() != prepared.frozen:
                    raise RuntimeError(
                        "layers were frozen or unfrozen (requires_grad) since they were planned: call the uncompiled "
                        "Racecar once, so that it is planned anew"
                    )
                size, samples = self.settings.slice_of(inputs)
                if samples < size and not prepared.layer_graph.match.can_slice(inputs):
                    raise RuntimeError(
                        "to compile with fraction < 1, make Racecar with example_inputs of two or more samples, of the "
                        "sizes that it will be called with"
                    )
                if not prepared.constrained:
                    return output, Outcome(no_loss(inputs), {}, None)
                return output, prepared.compiled_loss(calls, kept, self.statistics, given)
        raise RuntimeError(
            "torch.compile meets a way through the model that has no plan yet, which breaks the graph: call the "
            "uncompiled Racecar once with such inputs, so that it is planned, and then compile"
        )


def plan_of(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], settings: Settings) -> Plan:
    """How every layer of a model would be reversed; of a frozen one, too."""
    check_model(model)
    engine = Engine(model, settings)
    engine.start(args, kwargs, train=False)
    return engine.plans[0].plan


def no_loss(inputs: Sequence[Tensor]) -> Tensor:
    """The loss of a reverse pass that is switched off."""
    return torch.zeros((), device=inputs[0].device if inputs else None)

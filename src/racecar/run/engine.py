"""One step's work: watch the forward pass, find its plan, run it backwards, sum the terms."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from racecar.errors import NothingToReverse
from racecar.plan.dry_plan import dry_plan, warn_about
from racecar.plan.layers import Plan
from racecar.plan.plan import Route
from racecar.run import loss, weights
from racecar.run.prepared import Outcome, Way, slice_of
from racecar.run.settings import Settings
from racecar.run.statistics import ReverseStatistics
from racecar.watch.calls import Watch
from racecar.watch.dry_run import RandomState, untouched, watch_forward
from racecar.watch.guards import check_model, check_sharding, fusible, reshard, takes_fused_path
from racecar.watch.inputs import batch_tensors, input_tensors
from racecar.watch.trace import Trace

MAX_WAYS = 256
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
        self.off = weights.all_zero(settings.weight)
        """Whether λ is 0 for all layers."""
        self.resting = False
        """Whether a schedule leaves this step out."""
        self.ways: list[Way] = []
        self.latest: Way | None = None
        self.forgets = False
        """Whether there were more ways than are remembered."""
        self.keep: frozenset[int] = frozenset()
        """Calls of the next pass, as far as we can tell, whose output is changed in place later."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        other = Engine.__new__(Engine)
        memo[id(self)] = other
        other.__dict__.update(copy.deepcopy(self.__dict__, memo))
        other.schedule(1, True)  # that belongs to the one that was copied
        return other

    def __getstate__(self) -> dict[str, Any]:
        # A plan holds functions that do not survive in a file: a pickled Racecar plans anew in its first call.
        fresh: dict[str, Any] = {"ways": [], "latest": None, "keep": frozenset(), "resting": False}
        return {**self.__dict__, **fresh, "settings": replace(self.settings, times=1)}

    def start(self, args: Sequence[Any], kwargs: Mapping[str, Any], train: bool = True) -> None:
        """Plan a model for the first time; refuse one that has nothing to reverse.

        Args:
            args, kwargs: of a call.
            train: whether it is to be trained: one whose layers are all frozen is refused, too.
        """
        plan = dry_plan(self.model, args, kwargs)
        reshard(self.model)
        way = self.add(plan)
        if train and not self.off and not way.constrained and any(way.frozen):
            raise NothingToReverse(
                f"every layer of {type(self.model).__name__} that could be constrained is frozen (requires_grad is "
                "False): the loss would train nothing; unfreeze a layer, or look into the model with racecar.inspect"
            )
        if self.settings.scale == "anchored":
            loss.anchor(input_tensors(args, kwargs))

    def add(self, plan: Plan) -> Way:
        """Remember a plan, and say what it has to leave out; the first one must have something to reverse."""
        way = self.work_out(plan, self.settings)
        warn_about(plan)
        if not self.ways:
            self._check(way)
        if len(self.ways) == MAX_WAYS and not self.forgets:
            self.forgets = True
            message = (
                f"{MAX_WAYS} ways through {type(self.model).__name__} were planned, and there are more: the oldest are "
                "forgotten from now on, and a step that takes a new one costs another forward pass"
            )
            warnings.warn(message, UserWarning, stacklevel=4)
        self.ways = [*self.ways[-MAX_WAYS + 1 :], way]
        self.latest = way
        self.keep |= frozenset(plan.position(value) for value in way.copies)
        return way

    def work_out(self, plan: Plan, settings: Settings, frozen: Sequence[bool] | None = None) -> Way:
        """A plan with settings, and room for the statistics of its batch norms."""
        way = Way(plan, settings, frozen)
        if self.statistics is not None:
            self.statistics.add(way.places)
        return way

    def set(self, settings: Settings) -> None:
        """Other settings for the same plans: all are worked out before anything changes."""
        self.check_patterns(settings.weight, self.ways)
        ways = [self.work_out(way.plan, settings, way.frozen_now()) for way in self.ways]
        if ways and settings.mode != self.settings.mode:
            self._check(ways[0])
        latest = None if self.latest is None else self.latest.plan
        self.settings, self.off, self.ways = settings, weights.all_zero(settings.weight), ways
        self.latest = next((way for way in ways if way.plan is latest), None)

    def schedule(self, times: int, on: bool) -> None:
        """In this step with so many times the weight, or not at all."""
        self.resting = not on
        if self.settings.times != times:
            self.set(replace(self.settings, times=times))

    def _check(self, way: Way) -> None:
        """Refuse a model that has nothing to reverse, or nothing that the settings choose."""
        layers, settings, name = way.plan.layers, way.settings, type(self.model).__name__
        if not layers:
            why = "".join(f"; {one.name}: {one.reason}" for one in way.plan.coverage.uncovered[:3])
            raise NothingToReverse(f"{name} has no weighted layer (linear, convolution, …) that sees its input{why}")
        if all(layer.problem for layer in layers):
            raise NothingToReverse(f"no layer of {name} has a rule; add one with @racecar.rules.register(...)")
        self.check_patterns(settings.weight, [way])
        left_out = weights.unmatched(settings.weight, [layer.names for layer in layers])
        off = weights.all_zero(settings.weight)
        if not way.constrained and not any(way.frozen) and (left_out or not off):
            raise NothingToReverse(
                f"weight {settings.weight!r} and mode {settings.mode!r} leave every layer of {name} that has a rule out"
            )

    def check_patterns(self, weight: weights.Weight, ways: Sequence[Way]) -> None:
        """Every pattern must match a layer that was seen, or one that another way through the model may use."""
        if not isinstance(weight, Mapping):
            return
        seen = [names for way in ways for names in (layer.names for layer in way.plan.layers)]
        unseen = [
            (name,)
            for name, module in self.model.named_modules()
            if any(p is not None and p.dim() > 1 for p in module._parameters.values())
        ]
        weights.check_patterns(weight, seen, unseen)

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], look: bool = False) -> tuple[Any, Outcome]:
        """The model's output, and its racecar loss with the terms and, if asked for, what shows whether it lives."""
        if torch.compiler.is_compiling():
            return self._run_compiled(args, kwargs)
        # A way that was never seen may have to be watched again, from the same random state.
        # While a CUDA graph is being recorded there is no such state to look at; the way is known then.
        start = RandomState(self.model) if self.model.training and not capturing() else None
        if takes_fused_path(self.fusible):  # watched, torch would not fuse: leave that pass without a trace
            with untouched(self.model):
                _, trace = watch_forward(self.model, args, kwargs, self.keep)
            output = self.model(*args, **kwargs)
        else:
            output, trace = watch_forward(self.model, args, kwargs, self.keep)
        way, trace = self.way(trace, args, kwargs, start)
        if not way.constrained:
            return output, Outcome(no_loss(trace.inputs), {}, None)
        tape, yardstick = way.tape([trace.calls[i] for i in trace.links], trace.kept_inputs)
        del trace  # frees the activations that the way back does not need
        return output, way.loss(tape, yardstick, self.statistics, look)

    def way(
        self,
        trace: Trace,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        start: RandomState | None = None,
        whole: bool = False,
    ) -> tuple[Way, Trace]:
        """The way that a pass took, planned anew if it was never seen; and its trace, with all that is needed."""
        size, samples = slice_of(trace.inputs, self.settings.share)
        sliced = samples < size and not whole
        way = next((way for way in self.ways if way.plan.match.fits(trace, sliced)), None)
        if way is None:
            check_sharding(self.model)
            plan = dry_plan(self.model, args, kwargs, start)
            # A way that is random differs in the dry pass: plan what was seen, without rules for whole modules.
            way = self.add(plan if plan.match.fits(trace, sliced) else Plan(self.model, trace))
        elif (flags := way.frozen_now()) != way.frozen:
            way = self._refreeze(way, flags)
        self.latest = way
        positions = frozenset(trace.position(value) for value in way.copies)
        if not positions <= trace.keep:  # these values are gone by now: watch the same way again, leaving no trace
            with untouched(self.model, start):
                _, trace = watch_forward(self.model, args, kwargs, positions)
            if not way.plan.match.fits(trace, sliced):
                raise RuntimeError(
                    f"{type(self.model).__name__} takes another way at random and changes activations in place, so "
                    "that they cannot be compared; use operations that are not in place"
                )
        self.keep |= positions
        return way, trace

    def _refreeze(self, way: Way, flags: tuple[bool, ...]) -> Way:
        """The same way with other layers frozen; kept, as a training may go back and forth in every step."""
        new = way.siblings.get(flags) or self.work_out(way.plan, self.settings, flags)
        way.siblings[flags], new.siblings = new, way.siblings
        self.ways = [new if one is way else one for one in self.ways]
        return new

    def _run_compiled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Outcome]:
        """The same while torch.compile traces: positions differ, so calls are matched in order."""
        inputs = batch_tensors(args, kwargs)
        funcs: list[Any] = []
        for way in self.ways:
            funcs += way.plan.changing
        kept = [x.clone() for x in inputs] if any(way.plan.changes_input for way in self.ways) else inputs
        watch = Watch(keep_funcs=tuple(funcs))
        if takes_fused_path(self.fusible):  # torch does not fuse where a gradient is asked for
            with torch.enable_grad(), watch:
                output = self.model(*args, **kwargs)
            output = _pytree.tree_map_only(Tensor, Tensor.detach, output)
        else:
            with watch:
                output = self.model(*args, **kwargs)
        for way in self.ways:
            calls = way.plan.match.align(watch.calls)
            if calls is not None:
                if way.frozen_now() != way.frozen:
                    raise RuntimeError(
                        "layers were frozen or unfrozen (requires_grad) since they were planned: call the uncompiled "
                        "Racecar once, so that it is planned anew"
                    )
                size, samples = slice_of(inputs, self.settings.share)
                if samples < size and not way.plan.match.can_slice(inputs):
                    raise RuntimeError(
                        "to compile with fraction < 1, make Racecar with example_inputs of two or more samples, of the "
                        "sizes that it will be called with"
                    )
                if not way.constrained:
                    return output, Outcome(no_loss(inputs), {}, None)
                return output, way.compiled_loss(calls, kept, self.statistics)
        raise RuntimeError(
            "torch.compile meets a way through the model that has no plan yet, which breaks the graph: call the "
            "uncompiled Racecar once with such inputs, so that it is planned, and then compile"
        )


def plan_of(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], settings: Settings) -> Route:
    """How every layer of a model would be reversed; of a frozen one, too."""
    check_model(model)
    engine = Engine(model, settings)
    engine.start(args, kwargs, train=False)
    return engine.ways[0].route


def capturing() -> bool:
    """Whether a CUDA graph is being recorded."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def no_loss(inputs: Sequence[Tensor]) -> Tensor:
    """The loss of a reverse pass that is switched off."""
    return torch.zeros((), device=inputs[0].device if inputs else None)

"""One step's work: watch the forward pass, find its plan, run it backwards, sum the terms."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from racecar import loss, weights
from racecar.capture import Watch
from racecar.errors import NothingToReverse
from racecar.guards import check_sharding, fusible, reshard, takes_fused_path
from racecar.plan import Plan
from racecar.planning import RandomState, dry_plan, input_tensors, untouched, warn_about, watch_forward
from racecar.settings import Settings
from racecar.statistics import ReverseStatistics
from racecar.trace import Trace
from racecar.way import Choice, Outcome, Way, slice_of

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
        return other

    def __getstate__(self) -> dict[str, Any]:
        # A plan holds functions that do not survive in a file: a pickled Racecar plans anew in its first call.
        return {**self.__dict__, "ways": [], "latest": None, "keep": frozenset()}

    def start(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Plan a model for the first time; refuse one that has nothing to reverse."""
        plan, name, weight = dry_plan(self.model, args, kwargs), type(self.model).__name__, self.settings.weight
        reshard(self.model)
        if not plan.layers:
            why = "".join(f"; {one.name}: {one.reason}" for one in plan.coverage.uncovered[:3])
            raise NothingToReverse(f"{name} has no weighted layer (linear, convolution, …) that sees its input{why}")
        self.add(plan)
        if all(layer.problem for layer in plan.layers):
            raise NothingToReverse(f"no layer of {name} has a rule; add one with @racecar.rules.register(...)")
        self.check_patterns(weight)
        if self.settings.scale == "anchored":
            loss.anchor(input_tensors(args, kwargs))
        left_out = weights.unmatched(weight, [layer.names for layer in plan.layers])
        if not self.ways[0].constrained and (left_out or not self.off):
            raise NothingToReverse(
                f"weight {weight!r} and mode {self.settings.mode!r} leave every layer of {name} that has a rule out"
            )

    def add(self, plan: Plan) -> Way:
        """Remember a plan, and say what it has to leave out."""
        way = self.work_out(plan, self.settings)
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
        warn_about(plan)
        return way

    def work_out(self, plan: Plan, settings: Settings) -> Way:
        """A plan with settings, and room for the statistics of its batch norms."""
        way = Way(plan, settings)
        if self.statistics is not None:
            self.statistics.add(way.places)
        return way

    def set(self, settings: Settings) -> None:
        """Other settings for the same plans."""
        self.use(self.choice(settings))

    def choice(self, settings: Settings) -> Choice:
        """Other settings, checked, that can be used again and again."""
        self.check_patterns(settings.weight)
        return Choice(settings, weights.all_zero(settings.weight))

    def use(self, choice: Choice) -> None:
        """From now on these settings. Nothing is worked out twice, and nothing waits for the device."""
        latest = None if self.latest is None else self.latest.plan
        choice.ways = {w.plan: choice.ways.get(w.plan) or self.work_out(w.plan, choice.settings) for w in self.ways}
        self.settings, self.off, self.ways = choice.settings, choice.off, list(choice.ways.values())
        self.latest = None if latest is None else choice.ways[latest]

    def check_patterns(self, weight: weights.Weight) -> None:
        """Every pattern must match a layer that was seen, or one that another way through the model may use."""
        if not isinstance(weight, Mapping):
            return
        seen = [names for way in self.ways for names in (layer.names for layer in way.plan.layers)]
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

    def _run_compiled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Outcome]:
        """The same while torch.compile traces: positions differ, so calls are matched in order."""
        inputs = input_tensors(args, kwargs)
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


def capturing() -> bool:
    """Whether a CUDA graph is being recorded."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def no_loss(inputs: Sequence[Tensor]) -> Tensor:
    """The loss of a reverse pass that is switched off."""
    return torch.zeros((), device=inputs[0].device if inputs else None)

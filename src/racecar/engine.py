"""One step's work: watch the forward pass, find its plan, run it backwards, sum the terms."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from racecar import loss, reverse
from racecar.batch import batch_size
from racecar.capture import Call, Watch
from racecar.errors import NothingToReverse
from racecar.frugal import frugally
from racecar.guards import check_sharding, fusible, reshard, takes_fused_path
from racecar.plan import Plan
from racecar.planning import RandomState, dry_plan, input_tensors, untouched, warn_about, watch_forward
from racecar.route import route
from racecar.settings import Settings
from racecar.trace import Trace

MAX_WAYS = 64
"""Ways through one model that are remembered; the oldest goes first."""


class Way:
    """A plan with the user's settings worked in, so that a step has nothing left to decide."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.plan, self.settings = plan, settings
        weights = loss.layer_weights(settings.weight, [layer.names for layer in plan.layers])
        # Where the layers are: a copy in every step would wait for the device.
        self.weights = [
            weight.to(layer.parameter.device) if isinstance(weight, Tensor) and layer.parameter is not None else weight
            for weight, layer in zip(weights, plan.layers, strict=True)
        ]
        self.features = [weight if isinstance(weight, Tensor) else None for weight in self.weights]
        """Apart from the numbers, which a compiler would build into its graph."""
        self.route = route(plan, settings.mode, [not loss.is_zero(weight) for weight in self.weights])
        self.constrained = [e.layer for e in self.route if e.constrained and e.layer is not None]
        self.needs = reverse.Needs([entry for entry in self.route if entry.needed])
        self.needs_all = reverse.Needs([entry for entry in self.route if entry.passed])
        self.copies = sorted(set(self.needs_all.values) & plan.changed)
        """Values that the way back needs and that the model changes in place later."""
        lost = [value for value in (*self.needs.values, *self.needs.shapes) if plan.batch[value] is None]
        self.lost = plan.around(lost[0]) if lost else ""
        """Where the batch dimension cannot be followed, if anywhere."""
        weights = [self.weights[layer.index] for layer in self.constrained]
        self.numbers = [1.0 if isinstance(weight, Tensor) else float(weight) for weight in weights]
        like = self.constrained[0].parameter if self.constrained else None
        self.lambdas = self._lambdas(torch.zeros((), dtype=torch.float32) if like is None else like)

    def _lambdas(self, like: Tensor) -> Tensor:
        """λ of the constrained layers: a tensor, so that a schedule neither waits for the device nor recompiles."""
        numbers = torch.tensor(self.numbers, dtype=loss.wide(like), pin_memory=like.is_cuda)
        return numbers.to(like.device, non_blocking=True)

    def tape(self, calls: Sequence[Call | None], inputs: Sequence[Tensor]) -> reverse.Tape:
        """What a pass left behind, cut to the slice of the batch that the settings ask for."""
        size, samples = slice_of(inputs, self.settings.fraction)
        if samples < size and self.lost:
            if not torch.compiler.is_compiling():
                message = f"fraction is ignored: the batch dimension cannot be followed through {self.lost}"
                warnings.warn(message, UserWarning, stacklevel=4)
            samples = size
        return reverse.Tape(self.plan, self.needs, calls, inputs, size, samples)

    def loss(self, tape: reverse.Tape) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss Σ λ_m · term_m and the terms by layer name."""
        sliced = tape.samples < tape.size
        terms = frugally(self._terms, tape) if sliced and torch.compiler.is_compiling() else self._terms(tape)
        if not torch.compiler.is_compiling() and self.lambdas.device != terms.device:  # the model has moved
            self.lambdas = self._lambdas(terms)
        total = (terms * self.lambdas).sum()
        return total, dict(zip((layer.name for layer in self.constrained), terms.detach().unbind(), strict=True))

    def _terms(self, tape: reverse.Tape) -> Tensor:
        """Run the way back: the terms of the constrained layers, as one vector."""
        constrained = set(self.constrained)
        errors, sizes, counts = [], [], []
        # Compared as soon as it is made, so that a compiler reads d' once and keeps nothing for later.
        for layer, rebuilt in reverse.steps(self.needs, tape, self.settings.input_activation):
            if layer not in constrained:
                continue
            d, features = tape.tensors[layer.d], self.features[layer.index]
            if features is not None:
                batch = self.plan.batch[layer.d]
                features = loss.spread(features, d.shape, batch.dim if batch else 0, layer.name)
            errors.append(loss.squared_error(d, rebuilt, features))
            counts.append(d.numel())
            if self.settings.scale == "relative":
                sizes.append(loss.size(d, features))
        for found in (errors, sizes, counts):
            found.reverse()
        return loss.terms(errors, sizes, counts, self.settings.scale, tape.size / tape.samples)

    def rebuild(self, calls: Sequence[Call | None], inputs: Sequence[Tensor]) -> dict[int, Tensor]:
        """d'_m by layer index, of the whole batch, wherever the way back passes."""
        size = batch_size(inputs)
        tape = reverse.Tape(self.plan, self.needs_all, calls, inputs, size, size)
        return reverse.run(self.needs_all, tape, self.settings.input_activation)


@dataclass(eq=False)
class Choice:
    """Settings with the ways that were worked out for them, so that a schedule comes back to them at no cost."""

    settings: Settings
    off: bool
    """Whether the reverse pass is skipped."""
    ways: dict[Plan, Way] = field(default_factory=dict)


class Engine:
    """A model with the ways that it was seen to take."""

    def __init__(self, model: nn.Module, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.fusible = fusible(model)
        self.off = loss.all_zero(settings.weight)
        self.ways: list[Way] = []
        self.latest: Way | None = None
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
            raise NothingToReverse(f"{name} has no weighted layer (linear, convolution, …) that sees its input")
        self.add(plan)
        if all(layer.problem for layer in plan.layers):
            raise NothingToReverse(f"no layer of {name} has a rule; add one with @racecar.rules.register(...)")
        self.check_patterns(weight)
        left_out = loss.unmatched(weight, [layer.names for layer in plan.layers])
        if not self.ways[0].constrained and (left_out or not self.off):
            raise NothingToReverse(
                f"weight {weight!r} and mode {self.settings.mode!r} leave every layer of {name} that has a rule out"
            )

    def add(self, plan: Plan) -> Way:
        """Remember a plan, and say what it has to leave out."""
        way = Way(plan, self.settings)
        self.ways = [*self.ways[-MAX_WAYS + 1 :], way]
        self.latest = way
        self.keep |= frozenset(plan.position(value) for value in way.copies)
        warn_about(plan)
        return way

    def set(self, settings: Settings) -> None:
        """Other settings for the same plans."""
        self.use(self.choice(settings))

    def choice(self, settings: Settings) -> Choice:
        """Other settings, checked, that can be used again and again."""
        self.check_patterns(settings.weight)
        return Choice(settings, loss.all_zero(settings.weight))

    def use(self, choice: Choice) -> None:
        """From now on these settings. Nothing is worked out twice, and nothing waits for the device."""
        latest = None if self.latest is None else self.latest.plan
        choice.ways = {w.plan: choice.ways.get(w.plan) or Way(w.plan, choice.settings) for w in self.ways}
        self.settings, self.off, self.ways = choice.settings, choice.off, list(choice.ways.values())
        self.latest = None if latest is None else choice.ways[latest]

    def check_patterns(self, weight: loss.Weight) -> None:
        """Every pattern must match a layer that was seen, or one that another way through the model may use."""
        if not isinstance(weight, Mapping):
            return
        seen = [names for way in self.ways for names in (layer.names for layer in way.plan.layers)]
        unseen = [
            (name,)
            for name, module in self.model.named_modules()
            if any(p is not None and p.dim() > 1 for p in module._parameters.values())
        ]
        loss.check_patterns(weight, seen, unseen)

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Tensor, dict[str, Tensor]]:
        """The model's output, its racecar loss and the terms."""
        if torch.compiler.is_compiling():
            return self._run_compiled(args, kwargs)
        # A way that was never seen may have to be watched again, from the same random state.
        start = RandomState(self.model) if self.model.training else None
        if takes_fused_path(self.fusible):  # watched, torch would not fuse: leave that pass without a trace
            with untouched(self.model):
                _, trace = watch_forward(self.model, args, kwargs, self.keep)
            output = self.model(*args, **kwargs)
        else:
            output, trace = watch_forward(self.model, args, kwargs, self.keep)
        way, trace = self.way(trace, args, kwargs, start)
        if not way.constrained:
            return output, no_loss(trace.inputs), {}
        tape = way.tape([trace.calls[i] for i in trace.links], trace.kept_inputs)
        del trace  # frees the activations that the way back does not need
        total, terms = way.loss(tape)
        return output, total, terms

    def way(
        self,
        trace: Trace,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        start: RandomState | None = None,
        whole: bool = False,
    ) -> tuple[Way, Trace]:
        """The way that a pass took, planned anew if it was never seen; and its trace, with all that is needed."""
        size, samples = slice_of(trace.inputs, self.settings.fraction)
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

    def _run_compiled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Tensor, dict[str, Tensor]]:
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
                size, samples = slice_of(inputs, self.settings.fraction)
                if samples < size and not way.plan.match.can_slice(inputs):
                    raise RuntimeError(
                        "to compile with fraction < 1, make Racecar with example_inputs of two or more samples, of the "
                        "sizes that it will be called with"
                    )
                if not way.constrained:
                    return output, no_loss(inputs), {}
                total, terms = way.loss(way.tape(calls, kept))
                return output, total, terms
        raise RuntimeError(
            "torch.compile meets a way through the model that has no plan yet, which breaks the graph: call the "
            "uncompiled Racecar once with such inputs, so that it is planned, and then compile"
        )


def no_loss(inputs: Sequence[Tensor]) -> Tensor:
    """The loss of a reverse pass that is switched off."""
    return torch.zeros((), device=inputs[0].device if inputs else None)


def slice_of(inputs: Sequence[Tensor], fraction: float) -> tuple[int, int]:
    """(N, n): the batch and how many of its samples the reverse pass sees."""
    size = batch_size(inputs)
    return size, max(1, round(fraction * size))

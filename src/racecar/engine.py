"""One training step's work: watch the forward pass, find its plan, run it backwards, sum the terms."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree

from racecar import loss, reverse
from racecar.batch import batch_size
from racecar.capture import ModuleWatch, Trace, Watch, version
from racecar.errors import NoRuleWarning, NothingToReverse, Unsupported
from racecar.guards import takes_fused_path
from racecar.plan import Plan
from racecar.route import MODES, Route, route

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Settings:
    """How a model is reversed; checked when it is made."""

    mode: str = "auto"
    weight: loss.Weight = 1.0
    scale: str = "relative"
    fraction: float = 1.0
    input_activation: Activation | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        if self.scale not in loss.SCALES:
            raise ValueError(f"scale must be one of {', '.join(loss.SCALES)}, not {self.scale!r}")
        fraction = self.fraction
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 < fraction <= 1:
            raise ValueError(f"fraction must be a number in (0, 1], not {fraction!r}")
        loss.check_weight(self.weight)


def activation(given: str | Activation | None) -> Activation | None:
    """``input_activation`` as a function: a callable, or a name such as "relu" or "sigmoid"."""
    if given is None or (callable(given) and not isinstance(given, str)):
        return given
    found = getattr(F, given, None) or getattr(torch, given, None) if isinstance(given, str) else None
    if found is None:
        raise ValueError(f"input_activation must be None, a function or a name in torch.nn.functional, not {given!r}")
    return found


def input_tensors(args: Any, kwargs: Any) -> list[Tensor]:
    """Every tensor among the model's arguments, however nested."""
    return [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]


def watch_forward(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    keep: frozenset[int] = frozenset(),
    buffers: dict[str, Tensor] | None = None,
) -> tuple[Any, Trace]:
    """Run the model and watch it.

    Args:
        keep: calls (or inputs, as −1 − i) whose tensor is needed as it was before a change in place.
        buffers: copies to run on, so that the model's own stay as they are.
    """
    inputs = input_tensors(args, kwargs)
    kept_inputs = [x.clone() if -1 - i in keep else x for i, x in enumerate(inputs)]
    versions = [version(x) for x in inputs]
    watch = Watch(keep)
    with watch:
        if buffers is None:
            output = model(*args, **kwargs)
        else:
            output = torch.func.functional_call(model, buffers, tuple(args), dict(kwargs))
    return output, Trace(watch.calls, inputs, watch.versions, versions, kept_inputs)


@contextmanager
def untouched(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Copies of the model's buffers to run on; the random state is put back afterwards."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    cuda = [device for device in devices if device.type == "cuda"]
    python = random.getstate()
    with torch.random.fork_rng(devices=cuda):
        yield {name: buffer.clone() for name, buffer in model.named_buffers()}
    random.setstate(python)


def dry_plan(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Plan:
    """Plan a model by one forward pass that leaves no trace: no gradient, no buffer, no random number."""
    watch = Watch()
    with torch.inference_mode(False), torch.no_grad(), untouched(model) as buffers:
        copies = _pytree.tree_map_only(Tensor, torch.clone, (tuple(args), dict(kwargs)))
        inputs = input_tensors(*copies)
        versions = [version(x) for x in inputs]
        with warnings.catch_warnings():
            # Re-entrant checkpointing warns about the missing gradient before we can refuse it.
            warnings.filterwarnings("ignore", message="None of the inputs have requires_grad=True")
            try:
                with ModuleWatch(watch, model) as modules, watch:
                    torch.func.functional_call(model, buffers, copies[0], copies[1])
            except Unsupported:
                raise
            except Exception as error:
                raise _rejected(model, inputs, error) from error
        trace = Trace(watch.calls, inputs, watch.versions, versions, inputs)
        return Plan(model, trace, modules)


def _rejected(model: nn.Module, inputs: Sequence[Tensor], error: Exception) -> ValueError:
    """The model's own error, with what it was called with in front."""
    shapes = ", ".join(str(tuple(x.shape)) for x in inputs) or "no tensor"
    name = type(model).__name__
    return ValueError(f"{name} does not accept example_inputs ({shapes}): {type(error).__name__}: {error}")


def aliases(plan: Plan) -> list[list[str]]:
    """For each layer its names without the suffixes "#2" and ".weight"."""
    found = []
    for layer in plan.layers:
        owner = layer.op.owner
        found.append([layer.name.partition("#")[0], owner.name if owner else layer.name])
    return found


def resolve(plan: Plan, settings: Settings) -> tuple[list[float | Tensor], Route]:
    """λ of every layer, and the way back that they make."""
    names = [layer.name for layer in plan.layers]
    weights = loss.layer_weights(settings.weight, names, aliases(plan))
    return weights, route(plan, settings.mode, [not loss.is_zero(w) for w in weights])


def check_reversible(model: nn.Module, plan: Plan, settings: Settings) -> None:
    """Raise if a model has nothing that could be constrained."""
    if not plan.layers:
        raise NothingToReverse(f"{type(model).__name__} has no weighted layer (linear, convolution, …) that sees its input")
    if all(layer.problem for layer in plan.layers):
        raise NothingToReverse(f"no layer of {type(model).__name__} has a rule; add one with racecar.rules.register")
    weights, way = resolve(plan, settings)
    if isinstance(settings.weight, Mapping) and not any(entry.constrained for entry in way):
        raise NothingToReverse(f"weight {dict(settings.weight)!r} leaves every layer out")


def needed_copies(way: Route) -> list[int]:
    """Values that the way back needs and that the model changes in place later."""
    used = {v for e in way if e.passed and e.layer is not None for v in (e.layer.d, e.layer.out)}
    return sorted(used & way.plan.changed)


def loss_of(
    way: Route, weights: Sequence[float | Tensor], tape: reverse.Tape, settings: Settings
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss Σ λ_m · term_m and the terms by layer name."""
    rebuilt = reverse.run(way, tape, settings.input_activation)
    share = tape.size / tape.samples
    total: Tensor | None = None
    terms: dict[str, Tensor] = {}
    for entry in way:
        if not entry.constrained or entry.layer is None:
            continue
        weight = weights[entry.layer.index]
        dims = weight if isinstance(weight, Tensor) else None
        term = loss.term(tape.tensor(entry.layer.d), rebuilt[entry.layer.index], dims, settings.scale, share)
        terms[entry.name] = term.detach()
        part = term if isinstance(weight, Tensor) or weight == 1 else weight * term
        total = part if total is None else total + part
    assert total is not None
    return total, terms


def no_loss(inputs: Sequence[Tensor]) -> Tensor:
    """The loss of a reverse pass that is switched off."""
    return torch.zeros((), device=inputs[0].device if inputs else None)


class Engine:
    """A model with the plans of the ways that it was seen to take."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.plans: list[Plan] = []
        self._keep: frozenset[int] = frozenset()

    def add(self, plan: Plan, settings: Settings) -> Plan:
        """Remember a plan, and say what it had to leave out."""
        if len(self.plans) >= MAX_PLANS:
            self.plans.pop(0)
        self.plans.append(plan)
        warn_about(plan)
        self._keep = frozenset(plan.position(v) for v in needed_copies(resolve(plan, settings)[1]))
        return plan

    def run(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], settings: Settings
    ) -> tuple[Any, Tensor, dict[str, Tensor]]:
        """The model's output, its racecar loss and the terms."""
        if torch.compiler.is_compiling():
            return self._run_compiled(args, kwargs, settings)
        fused = takes_fused_path(self.model)
        plain = self.model(*args, **kwargs) if fused else None
        output, trace = watch_forward(self.model, args, kwargs, self._keep)
        size, samples = slice_of(trace.inputs, settings.fraction)
        plan, trace = self.plan_for(trace, args, kwargs, settings, sliced=samples < size)
        weights, way = resolve(plan, settings)
        tape = reverse.from_trace(plan, trace, *check_slice(way, size, samples))
        del trace
        total, terms = loss_of(way, weights, tape, settings)
        return plain if fused else output, total, terms

    def plan_for(
        self, trace: Trace, args: Sequence[Any], kwargs: Mapping[str, Any], settings: Settings, sliced: bool = False
    ) -> tuple[Plan, Trace]:
        """The plan of the way that a pass took, a new one if it was never seen; and its trace, whole."""
        plan = next((plan for plan in self.plans if plan.fits(trace, sliced)), None)
        if plan is None:
            plan = dry_plan(self.model, args, kwargs)
            if not plan.fits(trace, sliced):  # the way is random: plan what was seen, without the modules' own rules
                plan = Plan(self.model, trace)
            self.add(plan, settings)
        copies = needed_copies(resolve(plan, settings)[1])
        missing = frozenset(trace.position(v) for v in copies)
        if not missing <= self._keep:  # values that are gone by now: watch the same way once more, leaving no trace
            with untouched(self.model) as buffers:
                _, trace = watch_forward(self.model, args, kwargs, missing, buffers)
            if not plan.fits(trace, sliced):
                raise RuntimeError(
                    f"{type(self.model).__name__} takes another way at random and changes activations in place, so they "
                    "cannot be compared; use operations that are not in place"
                )
        self._keep = missing
        return plan, trace

    def _run_compiled(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], settings: Settings
    ) -> tuple[Any, Tensor, dict[str, Tensor]]:
        inputs = input_tensors(args, kwargs)
        size, samples = slice_of(inputs, settings.fraction)
        funcs: list[Any] = []
        for plan in self.plans:
            funcs += plan.changing
        kept_inputs = [x.clone() for x in inputs] if any(plan.changes_input for plan in self.plans) else inputs
        watch = Watch(keep_funcs=tuple(funcs))
        with watch:
            output = self.model(*args, **kwargs)
        for plan in self.plans:
            calls = plan.align(watch.calls)
            if calls is not None:
                if samples < size and not plan.can_slice(inputs):
                    raise RuntimeError(
                        "to compile with fraction < 1, make Racecar with example_inputs of two or more samples and of the "
                        "sizes that it will be called with"
                    )
                weights, way = resolve(plan, settings)
                tape = reverse.Tape(plan, calls, kept_inputs, *check_slice(way, size, samples))
                total, terms = loss_of(way, weights, tape, settings)
                return output, total, terms
        raise RuntimeError(
            "torch.compile meets a way through the model that has no plan yet: call the uncompiled Racecar once with "
            "such inputs, so that it is planned, and compile again"
        )


MAX_PLANS = 64
"""Ways through one model that are remembered; the oldest goes first."""


def warn_about(plan: Plan) -> None:
    """Name what has no rule, and how to add one."""
    for layer in plan.layers:
        if layer.problem:
            warnings.warn(
                f"layer {layer.name!r} is skipped: {layer.problem}; add one with @racecar.rules.register(...)",
                NoRuleWarning,
                stacklevel=4,
            )
        elif layer.bottom is not None and layer.bottom.role == "unknown" and layer.bottom.rule is None:
            warnings.warn(
                f"no rule for {layer.bottom.kind!r}: the way back from layer {layer.name!r} ends there; add one with "
                "@racecar.rules.register(..., role='shape') or role='activation'",
                NoRuleWarning,
                stacklevel=4,
            )


def check_slice(way: Route, size: int, samples: int) -> tuple[int, int]:
    """(N, n), or (N, N) with a warning where the batch dimension of a tensor on the way is lost."""
    if samples < size:
        lost = [value for value in way.values() if way.plan.batch[value] is None]
        if lost:
            if not torch.compiler.is_compiling():
                warnings.warn(
                    f"fraction is ignored: the batch dimension cannot be followed through {way.plan.around(lost[0])}",
                    UserWarning,
                    stacklevel=4,
                )
            return size, size
    return size, samples


def slice_of(inputs: Sequence[Tensor], fraction: float) -> tuple[int, int]:
    """(N, n): the batch and how many of its samples the reverse pass sees."""
    size = batch_size(inputs)
    return size, max(1, round(fraction * size))

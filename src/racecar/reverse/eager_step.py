"""One step in eager mode: the forward pass is recorded, its plan found, and the reverse pass run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from racecar.plan.from_model import layer_graph_of
from racecar.plan.layer_graph import LayerGraph
from racecar.reverse import linear_mode, reverse
from racecar.reverse.engine import Engine
from racecar.reverse.loss import Outcome, denominators, layer_terms, no_loss, weighted_sum
from racecar.reverse.mask_arguments import CallMask
from racecar.reverse.masks import PassMasks
from racecar.reverse.norm_statistics import PassStatistics
from racecar.reverse.prepared import PreparedPlan
from racecar.reverse.slicing import BatchSlice, EagerSlicer
from racecar.reverse.tape import record
from racecar.reverse.values import ForwardValues
from racecar.support.compiling import capturing
from racecar.watch.dry_run import RngState, untouched, watch_forward
from racecar.watch.guards import check_sharding, takes_fused_path
from racecar.watch.inputs import batch_size
from racecar.watch.trace import Trace


def run(
    engine: Engine, args: Sequence[Any], kwargs: Mapping[str, Any], mask: CallMask | None, check: bool
) -> tuple[Any, Outcome]:
    """One step: the model's output, and the outcome of the reverse pass.

    Args:
        engine: the model, its settings and its plans.
        args, kwargs: of the model's call.
        mask: its padding.
        check: whether to check for dead layers.
    """
    # A new branch is watched again from the same random state. While a CUDA graph is recorded that state cannot be
    # read, and the branch is known.
    start = RngState(engine.model) if engine.model.training and not capturing() else None
    clone = engine.cache.clone
    if takes_fused_path(engine.fusible):  # torch runs no fused kernels while calls are recorded: record another pass
        with untouched(engine.model):
            _, trace = watch_forward(engine.model, args, kwargs, clone)
        output = engine.model(*args, **kwargs)
    else:
        output, trace = watch_forward(engine.model, args, kwargs, clone)
    engine.masks.refuse_ignored(kwargs, trace)
    prepared, values = plan_and_values(engine, trace, args, kwargs, start, output=output)
    del trace
    if not prepared.terms:
        return output, Outcome(no_loss(values.inputs), {}, None)
    part = prepared.slice_of(values.inputs)
    masks = None if mask is None else PassMasks(values, mask, *part)
    slicer = EagerSlicer(prepared.needs, part) if part.samples < part.size else None
    tape = record(prepared.needs, values, part, slicer, masks)
    divide_by = denominators(prepared, values, part, masks)
    del values  # frees the activations that the reverse pass does not need
    running = engine.statistics
    statistics = None if running is None else PassStatistics(running)
    terms, sizes = layer_terms(prepared, tape, divide_by, check, statistics)
    if running is not None and statistics is not None:
        running.update(statistics.recorded)
    shapes = [tape.shapes[term.value] for term in prepared.terms.values()] if check else []
    # An expert that received no token is not dead.
    return output, weighted_sum(prepared, terms, sizes, [i for i, shape in enumerate(shapes) if shape.numel() > 0])


def watch_all(
    engine: Engine, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, PreparedPlan, ForwardValues]:
    """Call the model once, to rebuild all its d_m: the output, the plan and the tensors of the pass."""
    output, trace = watch_forward(engine.model, args, kwargs, engine.cache.clone)
    return output, *plan_and_values(engine, trace, args, kwargs, whole=True, output=output)


def plan_and_values(
    engine: Engine,
    trace: Trace,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    start: RngState | None = None,
    whole: bool = False,
    output: Any = None,
) -> tuple[PreparedPlan, ForwardValues]:
    """The plan of the branch that a pass took, made now if the branch is new, and the tensors of the pass.

    Args:
        engine: the model, its settings and its plans.
        trace: of the pass.
        args, kwargs: of the model's call.
        start: the random state before the pass; None: the present one.
        whole: whether all layers are to be rebuilt, on the whole batch, also where λ is 0.
        output: of the model in that pass.
    """
    settings, cache = engine.settings, engine.cache
    part = BatchSlice(*settings.slice_of(trace.inputs))
    sliced = part.samples < part.size and not whole
    prepared = cache.find(trace, sliced)
    if prepared is None:
        check_sharding(engine.model)
        layer_graph = layer_graph_of(engine.model, args, kwargs, settings.rules, start)
        if not layer_graph.match.fits(trace, sliced):
            # The model takes branches at random: plan the pass itself, without the rules for whole modules.
            layer_graph = LayerGraph(engine.model, trace, settings.rules, output=output)
        prepared = engine.add(layer_graph)
    elif (frozen := prepared.frozen_now()) != prepared.frozen:
        prepared = engine.refreeze(prepared, frozen)
    cache.latest = prepared
    if whole and settings.off:
        prepared = engine.with_all_layers(prepared)
    in_place = frozenset(trace.position(value) for value in prepared.in_place)
    if not in_place <= trace.keep:  # the model has changed tensors that are needed: watch the same branch again
        with untouched(engine.model, start):
            _, trace = watch_forward(engine.model, args, kwargs, in_place)
        if not prepared.layer_graph.match.fits(trace, sliced):
            raise RuntimeError(
                f"{type(engine.model).__name__} takes another branch at random and changes activations in place, so "
                "that they cannot be compared; use operations that are not in place"
            )
    cache.clone |= in_place
    calls = [trace.calls[i] for i in trace.links]
    return prepared, ForwardValues(prepared.layer_graph, calls, trace.kept_inputs)


def rebuild(
    prepared: PreparedPlan,
    values: ForwardValues,
    statistics: PassStatistics | None = None,
    mask: CallMask | None = None,
) -> dict[int, Tensor]:
    """Layer index → d'_m, of the whole batch, for every layer that the reverse pass reaches."""
    size = batch_size(values.inputs)
    masks = None if mask is None else PassMasks(values, mask, size, size)
    tape = record(prepared.needs_to_rebuild, values, BatchSlice(size, size), masks=masks)
    if prepared.settings.mode == "linear":
        return linear_mode.run(prepared.needs_to_rebuild, tape)
    return reverse.run(prepared.needs_to_rebuild, tape, prepared.settings.input_activation, statistics)

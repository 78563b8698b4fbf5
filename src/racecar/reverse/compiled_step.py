"""One step while torch.compile traces it: the same as in eager mode, with a plan that was made before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from racecar.reverse import linear_mode
from racecar.reverse.engine import Engine
from racecar.reverse.loss import Outcome, denominators, layer_terms, no_loss, weighted_sum
from racecar.reverse.mask_arguments import CallMask
from racecar.reverse.masks import PassMasks
from racecar.reverse.norm_statistics import PassStatistics
from racecar.reverse.prepared import PreparedPlan
from racecar.reverse.selective_checkpoint import selective_checkpoint
from racecar.reverse.slicing import CompiledSlicer
from racecar.reverse.tape import record
from racecar.reverse.values import ForwardValues
from racecar.support.torch_private import map_tensors
from racecar.watch.calls import Call
from racecar.watch.compiled import CompiledWatch
from racecar.watch.guards import takes_fused_path
from racecar.watch.inputs import batch_tensors


def run(
    engine: Engine, args: Sequence[Any], kwargs: Mapping[str, Any], mask: CallMask | None, check: bool
) -> tuple[Any, Outcome]:
    """One step, as :func:`racecar.reverse.eager_step.run`.

    A slice is cut off inside the selective checkpoint, so that the backward pass cuts it off again. Cut off outside,
    the slice would be kept beside the whole tensor; and torch (as of 2.13), which does not see that the two share
    memory, would write over one of them before it has read the other.
    """
    inputs = batch_tensors(args, kwargs)
    graphs = [prepared.layer_graph for prepared in engine.cache.plans]
    kept_inputs = [x.clone() for x in inputs] if any(graph.in_place.of_input for graph in graphs) else inputs
    output, watch = _watch(engine, args, kwargs)
    prepared, calls = _find_plan(engine, watch, inputs)
    if not prepared.terms:
        return output, Outcome(no_loss(inputs), {}, None)
    values = ForwardValues(prepared.layer_graph, calls, kept_inputs)
    needs, part = prepared.needs, prepared.slice_of(kept_inputs)
    sliced = part.samples < part.size
    masks = None if mask is None else PassMasks(values, mask, *part)
    divide_by = denominators(prepared, values, part, masks)
    slicer = CompiledSlicer(needs, values, part) if sliced else None
    running = engine.statistics

    def reverse_pass() -> tuple[Tensor | None, ...]:  # a checkpoint must change nothing: statistics are results
        statistics = None if running is None else PassStatistics(running)
        tape = record(needs, values, part, slicer, masks)
        terms_and_sizes = layer_terms(prepared, tape, divide_by, check, statistics)
        if running is None or statistics is None:
            return terms_and_sizes
        return (*terms_and_sizes, *running.updated(statistics.recorded))

    # torch.func cannot be recomputed, and a gradient that is computed already need not be.
    recomputed = sliced and not needs.by_vjp and not linear_mode.keeps_nothing(needs)
    terms, sizes, *updated = selective_checkpoint(reverse_pass) if recomputed else reverse_pass()
    if running is not None and updated:
        running.assign([tensor for tensor in updated if tensor is not None])
    assert terms is not None
    return output, weighted_sum(prepared, terms, sizes, range(len(prepared.names)) if check else [])


def _watch(engine: Engine, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, CompiledWatch]:
    """Call the model: its output, and the calls that it made."""
    graphs = [prepared.layer_graph for prepared in engine.cache.plans]
    cloned: list[Any] = []
    for graph in graphs:
        cloned += graph.in_place.functions
    watch = CompiledWatch(tuple(cloned), any(graph.recurrent for graph in graphs), any(graph.lists for graph in graphs))
    if takes_fused_path(engine.fusible):  # torch runs no fused kernels where a gradient is asked for
        with torch.enable_grad(), watch:
            output = engine.model(*args, **kwargs)
        return map_tensors(Tensor.detach, output), watch
    with watch:
        output = engine.model(*args, **kwargs)
    return output, watch


def _find_plan(
    engine: Engine, watch: CompiledWatch, inputs: Sequence[Tensor]
) -> tuple[PreparedPlan, list[Call | None]]:
    """The plan of the branch that the model took, and its calls by the ordinal of their operation.

    Tensors cannot be told apart by identity here, as in eager mode: calls are matched with a plan's in their order."""
    for prepared in engine.cache.plans:
        calls = prepared.layer_graph.call_order.align(watch.calls, watch.grad)
        if calls is None:
            continue
        if prepared.frozen_now() != prepared.frozen:
            raise RuntimeError(
                "layers were frozen or unfrozen (requires_grad) since they were planned: call the uncompiled "
                "Racecar once, so that it is planned anew"
            )
        size, samples = engine.settings.slice_of(inputs)
        if samples < size and not prepared.layer_graph.match.can_slice(inputs):
            raise RuntimeError(
                "to compile with fraction < 1, make Racecar with example_inputs of two or more samples, of the "
                "sizes that it will be called with"
            )
        return prepared, calls
    raise RuntimeError(
        "torch.compile meets a branch of the model that has no plan yet, which breaks the graph: call the "
        "uncompiled Racecar once with such inputs, so that it is planned, and then compile"
    )

"""The routes of the reverse pass through the layers in each mode, and the plan that follows from a route."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from racecar.errors import NotReversible
from racecar.plan.entry import Entry
from racecar.plan.graph import Graph, Op
from racecar.plan.layer import Layer
from racecar.plan.layer_graph import LayerGraph
from racecar.plan.plan import Plan
from racecar.plan.step_order import out_of
from racecar.rules.roles import Role
from racecar.watch.names import shown

MODES = ("auto", "full", "layerwise", "input", "linear")
SEPARATE = ("layerwise", "linear")
"""The modes in which the step back through every layer starts from the layer's own forward output."""


class Route(NamedTuple):
    """Where the reverse pass starts, which layers it goes through, and which ones it compares."""

    starts: dict[int, Layer | None]
    """Index of each layer that the reverse pass goes through → the layer above whose d' the step back starts from;
    None: it starts from the layer's own forward output."""
    active: Sequence[bool]
    """One flag per layer: whether it is compared."""
    bypassed: Sequence[Layer] = ()
    """``Plan.bypassed``."""


def make_plan(
    layer_graph: LayerGraph,
    mode: str,
    active: Sequence[bool],
    frozen: Sequence[bool] = (),
    weights: Sequence[float | Tensor] = (),
) -> Plan:
    """The plan of the reverse pass in a mode.

    Args:
        layer_graph: the layers.
        mode: one of ``MODES``.
        active: one flag per layer: whether its λ is not 0 and it is not left out because it is frozen.
        frozen: one flag per layer: whether it is frozen, for the reasons in the table; empty: none is.
        weights: λ of each layer, for the table.
    """
    layers = layer_graph.layers
    active = [flag and not layer.problem for flag, layer in zip(active, layers, strict=True)]
    route = _route(layer_graph, mode, active)
    needed = _needed(layers, route)
    entries = []
    for layer in layers:
        is_frozen = layer.index < len(frozen) and frozen[layer.index]
        left_out = (layer.cut_off or "frozen") if is_frozen else "weight 0"
        entries.append(_entry(layer_graph.graph, mode, layer, route, layer.index in needed, left_out))
    if route.bypassed:
        start = next(layer for layer in reversed(layers) if layer.index in route.starts and layer not in route.bypassed)
        note = f"not on the path: it starts at {shown(start.name)}"
        entries = [replace(entry, reason=note) if entry.layer in route.bypassed else entry for entry in entries]
    constants = layer_graph.coverage.constants
    entries += [Entry(op.name, op.kind, False, "forward", op.reason) for op in constants]
    return Plan(layer_graph, mode, tuple(entries), tuple(weights), tuple(route.bypassed))


def warn_bypassed(plan: Plan) -> None:
    """Warn of the layers that a plan in mode "full" or "input" bypasses."""
    if plan.bypassed:
        start = next(entry for entry in reversed(plan.entries) if entry.passed and entry.layer not in plan.bypassed)
        others = ", ".join(repr(shown(layer.name)) for layer in plan.bypassed)
        by_itself = "compared by themselves, and no reverse pass leads from them to the layers below"
        warnings.warn(
            f"mode {plan.mode!r} goes back from one head, {shown(start.name)!r}, which is called last; layers of other "
            f"heads ({others}) are {by_itself if plan.mode == 'full' else 'ignored'}; use mode='auto' or "
            "mode='layerwise', or give the other heads weight 0",
            UserWarning,
            stacklevel=5,
        )


def _route(layer_graph: LayerGraph, mode: str, active: Sequence[bool]) -> Route:
    layers = layer_graph.layers
    if mode in SEPARATE:
        return Route({layer.index: None for layer in layers if active[layer.index]}, active)
    starts = {} if mode == "input" else _stretches(layers, active)
    if mode == "auto":
        return Route(starts, active)
    path = _path_to_input(layer_graph, mode, active)
    bypassed = _bypassed(layer_graph, mode, path, active)
    for above, layer in zip([None, *path], path, strict=False):
        if not layer.problem:
            starts[layer.index] = None if above is None or above.problem else above
    if mode == "input" and path:
        active = [flag and layer is path[-1] for flag, layer in zip(active, layers, strict=True)]
    return Route(starts, active, bypassed)


def _stretches(layers: Sequence[Layer], active: Sequence[bool]) -> dict[int, Layer | None]:
    """``Route.starts`` of mode "auto": from the last active layer of every stretch without join or fork down."""
    starts: dict[int, Layer | None] = {}
    for layer in reversed(layers):
        if layer.above is not None and layer.above.index in starts:
            starts[layer.index] = layer.above
        elif active[layer.index]:
            starts[layer.index] = None
    return starts


def _path_to_input(layer_graph: LayerGraph, mode: str, active: Sequence[bool]) -> list[Layer]:
    """The layers from the last active one to the input; raises NotReversible if there is a join before that layer."""
    last = next((layer for layer in reversed(layer_graph.layers) if active[layer.index]), None)
    if last is None:
        return []
    join = _first_join_before(layer_graph.graph, last)
    if join is not None:
        raise NotReversible(
            f"mode {mode!r} needs one reverse pass from output to input, but {layer_graph.place(join)} joins several "
            f"tensors before layer {shown(last.name)!r}; use mode='auto' or mode='layerwise'"
        )
    path: list[Layer] = []
    layer: Layer | None = last
    while layer is not None:
        path.append(layer)
        layer = layer.below or layer.beyond
    return path


def _bypassed(layer_graph: LayerGraph, mode: str, path: Sequence[Layer], active: Sequence[bool]) -> list[Layer]:
    """The active layers that are not on the path; in mode "full" only those that depend on a layer on the path."""
    on_path, reached, dependent = {id(layer.op) for layer in path}, set[int](), set[int]()
    for op in layer_graph.graph.ops:
        if any(value in reached for _, value in op.inputs):
            dependent.add(id(op))
            reached.update(op.outputs)
        elif id(op) in on_path:
            reached.update(op.outputs)
    return [
        layer
        for layer in layer_graph.layers
        if active[layer.index] and id(layer.op) not in on_path and (mode == "input" or id(layer.op) in dependent)
    ]


def _first_join_before(graph: Graph, layer: Layer) -> Op | None:
    """The first join, in forward order, that a layer depends on."""
    first: Op | None = None
    waiting, seen = [value for _, value in layer.op.inputs], set()
    while waiting:
        op = graph.maker.get(waiting.pop())
        if op is None or id(op) in seen:
            continue
        seen.add(id(op))
        joins = not op.members and (op.role is Role.JOIN or len({value for _, value in op.inputs}) > 1)
        if joins and (first is None or op.ordinal < first.ordinal):
            first = op
        if op.role is not Role.SOURCE:
            waiting += [value for _, value in op.inputs]
    return first


def _needed(layers: Sequence[Layer], route: Route) -> set[int]:
    """The indices of the layers whose d' is needed for the term of some active layer."""
    needed = {i for i in route.starts if route.active[i]}
    for layer in layers:  # from the input to the output
        above = route.starts.get(layer.index)
        if layer.index in needed and above is not None:
            needed.add(above.index)
    return needed


def _entry(graph: Graph, mode: str, layer: Layer, route: Route, needed: bool, left_out: str) -> Entry:
    """The entry of a layer. ``left_out``: the reason if it is not active; ``needed``: see :class:`Entry`."""
    alone, active = mode == "linear", route.active[layer.index]
    if layer.index not in route.starts:
        reason = layer.problem or ("mode input" if mode == "input" else left_out)
        return Entry(layer.name, layer.kind, False, "forward", reason, layer, alone=alone)
    upper = route.starts[layer.index]
    reason = ""
    if not active:
        reason = ("only the input is compared" if mode == "input" else left_out) + ", passed through"
    elif upper is None and mode not in SEPARATE:
        reason = layer.stop or "the last layer with a weight"
    source = "forward" if upper is None else "reverse"
    start = layer.out if upper is None else upper.d
    steps = layer.into_h if alone else (*out_of(graph, layer.op, start), *layer.into_d)
    return Entry(layer.name, layer.kind, active, source, reason, layer, upper, steps, True, needed, alone)

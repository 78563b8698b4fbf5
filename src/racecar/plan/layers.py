"""The layers of a graph: each weighted operation with its name, the layers beside it and the steps between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from racecar.plan.causal import causal_cut
from racecar.plan.graph import Graph, Op
from racecar.plan.layer import Layer
from racecar.plan.parts import reversible
from racecar.plan.step_order import into_d
from racecar.rules.activation import SOFTMAX
from racecar.rules.conv import fold_padding
from racecar.rules.roles import Role


def find_layers(graph: Graph) -> list[Layer]:
    """The layers of a graph in forward order, without what depends on the batch (``LayerGraph`` adds that)."""
    ops = [op for op in graph.ops if op.role.weighted]
    layers = [Layer(name, op, i) for i, (name, op) in enumerate(zip(_names(ops), ops, strict=True))]
    used_later = _values_before_layers(graph)
    for layer in layers:
        layer.head = used_later.isdisjoint(layer.op.outputs)
        layer.end = _end(graph, layer)
    layer_at = {layer.end: layer for layer in layers}
    for layer in layers:
        _walk_down(graph, layer, layer_at)
        layer.into_d = tuple(into_d(graph, layer.op, layer.approach, layer.redo))
        below = layer.below
        if below is not None and layer.forked is None and not layer.problem and not below.problem:
            below.above = layer
    names = {id(layer.op): layer.name for layer in layers if layer.name}
    for layer in layers:
        layer.out = layer.above.d if layer.above is not None else _walk_up(graph, layer, used_later, names)
        layer.onward = tuple(reversed(graph.chain(layer.op, layer.out)))
    return layers


def _names(ops: Sequence[Op]) -> list[str]:
    """A unique name for each weighted operation.

    That is the qualified name of its module, with ".weight_name" if the module has several weights in use, and with
    "#2", "#3", … for later uses of the same weight.
    """
    owners = [op.owner for op in ops if op.owner is not None]
    weights = Counter(name for name, _ in {(owner.name, owner.attribute) for owner in owners})
    uses = Counter[str]()
    names = []
    for owner in owners:
        several = weights[owner.name] > 1
        name = f"{owner.name}.{owner.attribute}".lstrip(".") if several else owner.name
        uses[name] += 1
        names.append(name if uses[name] == 1 else f"{name}#{uses[name]}")
    return names


def _values_before_layers(graph: Graph) -> set[int]:
    """The values that some layer later in the forward pass depends on."""
    values = set[int]()
    for op in reversed(graph.ops):
        if op.role.weighted or not values.isdisjoint(op.outputs):
            values.update([value for _, value in op.inputs])
    return values


def _end(graph: Graph, layer: Layer) -> int:
    """``Layer.end``; also sets ``Layer.cut``."""
    end = value = layer.op.outputs[0]
    if layer.problem:
        return end
    layer.cut = causal_cut(graph, layer.op, lambda op: op.bind(graph.call(op.ordinal)), graph.trace.tensor)
    if layer.cut is not None:
        return layer.cut.outputs[0]
    while (op := graph.only_user(value)) is not None and op.role.passable:
        if op.role not in (Role.SHAPE, Role.PASS) and op.kind not in ("add", "sub"):
            break
        value = op.outputs[0]
        if op.role is Role.AFFINE:
            end = value
    return end


def _walk_down(graph: Graph, layer: Layer, layer_at: dict[int, Layer]) -> None:
    """Set what a layer has towards the input, up to the layer below or to an operation that cannot be reversed.

    Args:
        layer_at: ``Layer.end`` → the layer.
    """
    value, chain, after_range = layer.op.source, list[Op](), False
    while True:
        users = graph.users[value]
        if len(users) > 1 and layer.forked is None:
            layer.forked = next(op for op in users if op is not (chain[-1] if chain else layer.op))
        if value in layer_at:
            layer.below = layer_at[value]
            break
        op = graph.maker.get(value)
        after_range = after_range or (bool(chain) and chain[-1].role.sets_range)
        if op is None or not (op.role.passable or reversible(op)):
            layer.bottom = op
            break
        if not op.role.passable and not after_range:
            source, of_input = _selected(graph, op, layer_at)
            if not of_input:
                layer.bottom, layer.beyond = op, source
                break
        chain.append(op)
        value = op.source
    module = layer.op.owner.module if layer.op.owner else None
    if chain and chain[0].kind == "pad" and getattr(module, "padding_mode", "zeros") != "zeros":
        layer.own_padding = chain[0]
        chain[0].rule = replace(chain[0].rule, apply=fold_padding)  # as part of a linear map it is transposed
    ranges = [i for i, op in enumerate(chain) if op.role.sets_range]
    if ranges:
        first, last = ranges[0], ranges[-1]
        layer.d, layer.approach = chain[first].outputs[0], chain[:first]
        layer.redo = [op for op in chain[first : last + 1][::-1] if op.role is not Role.PASS]
    else:
        layer.d, layer.approach = value, chain


def _selected(graph: Graph, op: Op | None, layer_at: dict[int, Layer]) -> tuple[Layer | None, bool]:
    """The layer from whose output a selection takes a part; and whether it takes a part of the model's input instead,
    with no norm or activation between."""
    after_range = False
    while op is not None and (op.role.passable or reversible(op)):
        after_range = after_range or op.role.sets_range
        if op.source in layer_at:
            return layer_at[op.source], False
        op = graph.maker.get(op.source)
    return None, op is None and not after_range


def _walk_up(graph: Graph, layer: Layer, used_later: set[int], names: dict[int, str]) -> int:
    """``Layer.out`` of a layer without a layer above, the value after the last norm or activation; sets ``Layer.stop``.

    Args:
        used_later: the values that some layer depends on.
        names: id of a layer's operation → its name.
    """
    out = value = layer.end
    selected_from: int | None = None
    while (op := graph.only_user(value)) is not None and (op.role.passable or reversible(op)):
        final_softmax = op.kind in SOFTMAX and value not in used_later
        if op.role is Role.SELECT and selected_from is None:
            selected_from = value
        value = op.outputs[0]
        if op.role.sets_range and not final_softmax:
            out, selected_from = value, None
    users = graph.users.get(value if selected_from is None else selected_from, [])
    labels = sorted({names.get(id(op), op.kind) for op in users})
    if len(users) == 1:
        layer.stop = f"join: {labels[0]}" if users[0].role is Role.JOIN else f"before {labels[0]}"
    else:
        layer.stop = f"fork: {', '.join(labels)}" if users else "the last layer"
    return out

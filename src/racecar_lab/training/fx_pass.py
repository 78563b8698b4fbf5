"""Recorded operations, made fewer and faster to call: for small nets Python takes longer than the numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

aten = torch.ops.aten
NAMES = (
    *("add", "addmm", "baddbmm", "bmm", "cat", "clamp_min", "div", "expand", "mm", "mul", "native_batch_norm", "neg"),
    *("pow", "relu", "select", "square", "squeeze", "stack", "sub", "sum", "t", "tanh", "transpose", "unsqueeze"),
    *("view", "_log_softmax", "_log_softmax_backward_data"),
)
DIRECT = {
    getattr(getattr(aten, name), overload): getattr(torch, name, None) or getattr(torch.Tensor, name)
    for name in NAMES
    for overload in getattr(aten, name).overloads()
}
"""The same as functions that Python calls faster: a fifth of the time of a small net."""
FILLED = (aten.ones_like.default, aten.zeros_like.default, aten.new_ones.default, aten.new_zeros.default)
"""They depend on the shape of what they are given alone."""


def shorten(recorded: fx.GraphModule) -> None:
    """Leave out what only repeats something, work out now what is the same in every call, and call the rest directly.
    No gradient may be asked for through it."""
    exposed = _exposed(recorded.graph)
    for node in recorded.graph.nodes:
        if (same := _same(node, exposed)) is not None:
            node.replace_all_uses_with(same)
    _fold(recorded, exposed)
    for node in recorded.graph.nodes:
        node.target = DIRECT.get(node.target, node.target)
    recorded.graph.eliminate_dead_code()
    recorded.recompile()


def _exposed(graph: fx.Graph) -> set[fx.Node]:
    """What may be changed by operations in place, or by who gets it in the end; with what that is a view of."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        changes, views = node.op == "output", False
        if isinstance(node.target, OpOverload):
            schema = node.target._schema
            changes, views = schema.is_mutable, any(one.alias_info for one in schema.returns)
        if changes or (views and node in found):
            found.update(node.all_input_nodes)
    return found


def _same(node: fx.Node, exposed: set[fx.Node]) -> fx.Node | None:
    """What a node only repeats: a tenth of the time of a small net."""
    if node.target == aten.detach.default:
        return node.all_input_nodes[0]
    if node.target == aten.t.default and node.all_input_nodes[0].target == aten.t.default:
        return node.all_input_nodes[0].all_input_nodes[0]
    if node.target in (aten.mul.Tensor, aten.pow.Tensor_Scalar) and node.args[1] == 1 and node not in exposed:
        (given,) = node.all_input_nodes
        if given not in exposed and given.meta["val"].dtype == node.meta["val"].dtype:
            return given
    return None


def _fold(recorded: fx.GraphModule, exposed: set[fx.Node]) -> None:
    """A fifth of the operations, such as the gradient of the loss by itself, times a coefficient. (torch.fx's own
    const_fold begins with what a module holds alone, and most of these begin with ones of a known shape.)"""
    known: dict[fx.Node, Any] = {}

    def value(node: fx.Node) -> Any:
        return known[node] if node in known else _any(node)

    for node in recorded.graph.nodes:
        if node in exposed:
            continue
        if node.op == "get_attr":
            known[node] = getattr(recorded, node.target)
        elif _is_known(node, known):
            known[node] = node.target(*fx.node.map_arg(node.args, value), **fx.node.map_arg(node.kwargs, value))
    for i, (node, one) in enumerate(known.items()):
        if node.op != "get_attr" and any(user not in known for user in node.users):
            recorded.register_buffer(f"known_{i}", one.clone())
            with recorded.graph.inserting_before(node):
                node.replace_all_uses_with(recorded.graph.get_attr(f"known_{i}"))


def _is_known(node: fx.Node, known: dict[fx.Node, Any]) -> bool:
    op = node.target
    if not isinstance(op, OpOverload) or op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags:
        return False
    given = node.all_input_nodes
    return op in FILLED or (len(op._schema.returns) == 1 and bool(given) and all(one in known for one in given))


def _any(node: fx.Node) -> Tensor:
    """Some tensor of the shape that a node gives."""
    value = node.meta["val"]
    return torch.empty(value.shape, dtype=value.dtype, device=value.device)

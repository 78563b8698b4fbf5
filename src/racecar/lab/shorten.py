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
"""They hang on the shape of what they are given alone."""


def shorten(recorded: fx.GraphModule) -> None:
    """Leave out what only repeats something, work out now what is the same in every call, and call the rest directly.
    No gradient may be asked for through it."""
    for node in recorded.graph.nodes:
        if (same := _same(node)) is not None:
            node.replace_all_uses_with(same)
    _fold(recorded)
    for node in recorded.graph.nodes:
        node.target = DIRECT.get(node.target, node.target)
    recorded.graph.eliminate_dead_code()
    recorded.recompile()


def _same(node: fx.Node) -> fx.Node | None:
    """What a node only repeats: a tenth of the time of a small net."""
    if node.target == aten.detach.default:
        return node.all_input_nodes[0]
    if node.target == aten.t.default and node.all_input_nodes[0].target == aten.t.default:
        return node.all_input_nodes[0].all_input_nodes[0]
    if node.target in (aten.mul.Tensor, aten.pow.Tensor_Scalar) and node.args[1] == 1 and not _exposed(node):
        (given,) = node.all_input_nodes
        return given if given.meta["val"].dtype == node.meta["val"].dtype else None
    return None


def _fold(recorded: fx.GraphModule) -> None:
    """A fifth of the operations, such as the gradient of the loss by itself, times a coefficient."""
    known: dict[fx.Node, Any] = {}

    def value(node: fx.Node) -> Any:
        return known[node] if node in known else _any(node)

    for node in recorded.graph.nodes:
        if node.op == "get_attr":
            known[node] = getattr(recorded, node.target)
        elif _is_known(node, known):
            known[node] = node.target(*fx.node.map_arg(node.args, value), **fx.node.map_arg(node.kwargs, value))
    for node in reversed(list(known)):  # where a view is not folded, what it is a view of is not, either
        views = (user for user in node.users if user not in known and _is_view(user))
        if node.op == "get_attr" or _exposed(node) or any(views):
            del known[node]
    for i, (node, one) in enumerate(known.items()):
        if any(user not in known for user in node.users):
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


def _exposed(node: fx.Node) -> bool:
    """Whether others may change what a node gives: who gets it in the end, or an operation in place."""
    return any(not isinstance(user.target, OpOverload) or user.target._schema.is_mutable for user in node.users)


def _is_view(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and any(one.alias_info for one in node.target._schema.returns)

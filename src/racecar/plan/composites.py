"""Activations and norms that a model spells out in several calls, found and combined into one operation.

``x * sigmoid(x)`` contains a fork and a join, but is an activation of x; ``x * rsqrt(x.pow(2).mean(-1, keepdim=True))``
is a norm. All calls between one tensor and another of the same shape, called a cone here, become one operation if they
use no weight. The reverse pass applies it again by making all its calls.
"""

from __future__ import annotations

from collections.abc import Callable

from racecar.plan.graph import Graph, Op
from racecar.rules.registry import Rule
from racecar.rules.roles import Role


def gather(graph: Graph) -> None:
    """Replace the calls of each activation or norm that the model spells out by one operation."""
    replace_cones(graph, _cone)


def replace_cones(graph: Graph, combine: Callable[[Graph, Op], Op | None]) -> None:
    """Replace cones, each all calls between one tensor and another, by one operation per cone, the outermost first.

    Args:
        combine: gives the cone that ends in an operation as one operation; None if there is none.
    """
    inside: set[int] = set()
    cones: dict[int, Op] = {}
    for op in reversed(graph.ops):
        cone = combine(graph, op) if op.ordinal not in inside and op.role is Role.JOIN else None
        if cone is not None:
            cones[op.ordinal] = cone
            inside |= {member.ordinal for member in cone.members}
    if cones:
        graph.ops = [cones.get(op.ordinal, op) for op in graph.ops if op.ordinal in cones or op.ordinal not in inside]
        graph.index()


def _weightless(op: Op) -> bool:
    """Whether an operation can be in a cone: no weight, no change of layout or resolution, reductions with keepdim."""
    if op.rule.reduction:
        return bool(op.kwargs.get("keepdim")) or True in op.args[2:]
    if op.role in (Role.JOIN, Role.UNKNOWN):
        return op.rule.elementwise
    if op.role is Role.SOURCE:  # a conversion of a mask to float
        return op.rule.role is Role.PASS
    return op.role.keeps_layout or op.role is Role.PASS


def _cone(graph: Graph, tip: Op) -> Op | None:
    """The cone that ends in ``tip`` as one operation, or None if there is none."""
    if not _weightless(tip) or len(tip.outputs) != 1:
        return None
    cone = cone_of(graph, tip, _weightless)
    if cone is None:
        return None
    source, members = cone
    trace = graph.trace
    if trace.tensor(source).shape != trace.tensor(tip.outputs[0]).shape:
        return None
    norm = any(op.role is Role.NORM or op.rule.reduction for op in members)
    role = Role.NORM if norm else Role.ACTIVATION
    kind = "norm" if norm else "pointwise"
    # A constant tensor has a layout of its own.
    plain = not norm and not any(graph.constants(op) for op in members)
    return Op(
        tip.ordinal, role, kind, Rule(role, kind, lambda op, x: op(x), pointwise=plain), None, (), {},
        (((0,), source),), tip.outputs, members=members,
    )  # fmt: skip


def cone_of(graph: Graph, tip: Op, fits: Callable[[Op], bool]) -> tuple[int, tuple[Op, ...]] | None:
    """The cone that ends in ``tip``: the one value that all its operations start from, and these in forward order.

    None if there is no such value, or if an operation outside of the cone uses a value inside.

    Args:
        fits: whether an operation can be in the cone.
    """
    members = [tip]
    frontier = {value for _, value in tip.inputs}
    while len(frontier) > 1:
        value = max(frontier)  # the latest one: values are numbered in forward order
        op = graph.maker.get(value)
        if op is None or not fits(op):
            return None
        frontier.remove(value)
        if op not in members:
            frontier |= {v for _, v in op.inputs}
            members.append(op)
    (source,) = frontier
    inside = set(map(id, members))
    for member in members[1:]:
        for value in member.outputs:
            if any(id(user) not in inside for user in graph.users.get(value, ())):
                return None
    return source, tuple(sorted(members, key=lambda op: op.ordinal))

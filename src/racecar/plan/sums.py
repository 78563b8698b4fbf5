"""Sums of linear maps of one tensor: one layer, whose weight is the sum.

LoRA computes ``base(x) + s · B(A(x))``. Three layers, a fork and a join by their calls; but with no activation between,
it is one weighted operation with the weight that acts, W + s·BA, and goes back as (W + s·BA)ᵀ(y − b). Dropout before A
is passed over, as everywhere. Every branch must have a weight: ``x + f(x)`` stays a residual join.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Size, Tensor

from racecar.plan.composites import cone_of
from racecar.plan.graph import Graph, Op
from racecar.rules.linear import like, minus, weight_of
from racecar.rules.operation import Operation, Path
from racecar.rules.registry import Rule
from racecar.rules.roles import Role
from racecar.watch.calls import tensors


def gather(graph: Graph) -> None:
    """Replace every sum of linear maps of one tensor by one operation, outermost first."""
    swallowed: set[int] = set()
    sums: dict[int, Op] = {}
    for op in reversed(graph.ops):
        if op.ordinal not in swallowed and op.role is Role.JOIN and _is_linear(graph, op):
            found = cone_of(graph, op, lambda one: _is_linear(graph, one))
            if found is not None and _all_weighted(*found):
                sums[op.ordinal] = _sum(graph, op, *found)
                swallowed |= {member.ordinal for member in found[1]}
    if sums:
        graph.ops = [sums.get(op.ordinal, op) for op in graph.ops if op.ordinal in sums or op.ordinal not in swallowed]
        graph.index()


def _is_linear(graph: Graph, op: Op) -> bool:
    """Whether an operation can be part of such a sum."""
    if op.role is Role.PASS:
        return True
    if op.rule is None or op.role not in (Role.LAYER, Role.AFFINE, Role.JOIN):
        return False
    operation, rule = op.bind(graph.call(op.ordinal)), op.rule
    if op.role is Role.LAYER:
        return rule.linear is not None and rule.linear(operation) is not None
    linear = rule.factor is not None and all(rule.factor(operation, path) is not None for path in op.at)
    return linear and _keeps_shape(graph, op) and _alike_for_all(graph, op)


def _keeps_shape(graph: Graph, op: Op) -> bool:
    """Whether nothing is broadcast."""
    tensor = graph.trace.tensor
    return all(tensor(value).shape == tensor(op.outputs[0]).shape for _, value in op.inputs)


def _alike_for_all(graph: Graph, op: Op) -> bool:
    """Whether its constants are the same for every sample."""
    call = graph.call(op.ordinal)
    return all(one.dim() < 2 for path, one in tensors(call.args, call.kwargs) if path not in op.at)


def _all_weighted(source: int, members: tuple[Op, ...]) -> bool:
    """Whether every way from the source to the end meets a weight."""
    bare = {source}
    for op in members:
        if op.role is not Role.LAYER and any(value in bare for _, value in op.inputs):
            bare.update(op.outputs)
    return members[-1].outputs[0] not in bare


def _sum(graph: Graph, tip: Op, source: int, members: tuple[Op, ...]) -> Op:
    """The sum as one layer, called as the owner of its largest weight."""
    layers = [op for op in members if op.role is Role.LAYER and op.owner is not None]
    largest = max(layers, key=lambda op: weight_of(op.bind(graph.call(op.ordinal))).numel())
    owners = [op.owner for op in (largest, *layers) if op.owner is not None]
    also = tuple(one for owner in owners for one in (owner, *owner.also))
    kind = f"sum of {largest.kind}"
    return Op(
        tip.ordinal, Role.LAYER, kind, Rule(Role.LAYER, kind, undo_sum), None, (), {}, (((0,), source),), tip.outputs,
        owner=replace(owners[0], also=also), members=members,
    )  # fmt: skip


def undo_sum(op: Any, y: Tensor, shape: Size) -> Tensor:
    """Mᵀ(y − b), where M is the sum of all branches and b what they give together on zeros."""
    members: list[tuple[Op, Operation]] = list(zip(op.op.members, op.members, strict=True))
    source, end = op.op.source, op.op.outputs[0]
    sample = shape if len(shape) < 2 else torch.Size((1, *shape[1:]))  # the others have the same b
    made: dict[int, Tensor] = {source: y.new_zeros(sample)}
    for one, call in members:
        data = [made[value] for _, value in one.inputs]
        if one.role is Role.LAYER:
            data = [like(data[0], weight_of(call))]
        made[one.outputs[0]] = data[0] if one.role is Role.PASS else call.run(data)
    back: dict[int, Tensor] = {end: minus(y, made[end])}
    for one, call in reversed(members):
        g = back.pop(one.outputs[0])
        for path, value in one.inputs:
            part = _transposed(one, call, path, g, torch.Size((*shape[:1], *made[value].shape[1:])))
            back[value] = back[value] + part if value in back else part
    return back[source]


def _transposed(one: Op, call: Operation, path: Path, g: Tensor, shape: Size) -> Tensor:
    """Back through one call of a sum, to the data at ``path``."""
    if one.role is Role.PASS:
        return g
    rule = one.rule
    assert rule is not None
    if rule.factor is not None:
        factor = rule.factor(call, path)
        return g if isinstance(factor, int) and factor == 1 else factor * g
    assert rule.linear is not None
    assert rule.apply is not None
    return rule.apply(rule.linear(call), g, shape)

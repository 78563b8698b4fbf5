"""Sums of linear maps of one tensor, which become one layer with the sum as its weight.

LoRA computes ``base(x) + s · B(A(x))``: by its calls three layers, a fork and a join. Without activations this is one
linear map with the weight W + s·BA, undone as (W + s·BA)ᵀ(y − b). Dropout before A is skipped, as everywhere. Every
branch must have a weight: ``x + f(x)`` stays a residual join.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Size, Tensor

from racecar.plan.composites import cone_of, replace_cones
from racecar.plan.graph import Graph, Op
from racecar.rules.linear import like, minus, weight_of
from racecar.rules.operation import Operation, Path
from racecar.rules.registry import NO_RULE, Rule
from racecar.rules.roles import Role


def gather(graph: Graph) -> None:
    """Replace each sum of linear maps of one tensor by one operation."""
    replace_cones(graph, _sum)


def _is_linear(graph: Graph, op: Op) -> bool:
    """Whether an operation can be part of a sum of linear maps."""
    if op.role is Role.PASS:
        return True
    if op.rule is NO_RULE or op.role not in (Role.LAYER, Role.AFFINE, Role.JOIN):
        return False
    operation, rule = op.bind(graph.call(op.ordinal)), op.rule
    if op.role is Role.LAYER:
        return rule.linear is not None and rule.linear(operation) is not None
    linear = rule.factor is not None and all(rule.factor(operation, path) is not None for path in op.at)
    same_for_all_samples = all(constant.dim() < 2 for constant in graph.constants(op))
    return linear and same_for_all_samples and _keeps_shape(graph, op)


def _keeps_shape(graph: Graph, op: Op) -> bool:
    """Whether an operation broadcasts none of its inputs."""
    tensor = graph.trace.tensor
    return all(tensor(value).shape == tensor(op.outputs[0]).shape for _, value in op.inputs)


def _all_weighted(source: int, members: tuple[Op, ...]) -> bool:
    """Whether every branch from the source to the end has a weight."""
    unweighted = {source}
    for op in members:
        if op.role is not Role.LAYER and any(value in unweighted for _, value in op.inputs):
            unweighted.update(op.outputs)
    return members[-1].outputs[0] not in unweighted


def _sum(graph: Graph, tip: Op) -> Op | None:
    """The sum of linear maps that ends in ``tip`` as one layer, named after its largest weight, or None."""
    cone = cone_of(graph, tip, lambda member: _is_linear(graph, member)) if _is_linear(graph, tip) else None
    if cone is None or not _all_weighted(*cone):
        return None
    source, members = cone
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
    """Mᵀ(y − b), where M is the sum of all branches and b their output on zeros."""
    members: list[tuple[Op, Operation]] = list(zip(op.op.members, op.members, strict=True))
    source, end = op.op.source, op.op.outputs[0]
    sample = shape if len(shape) < 2 else torch.Size((1, *shape[1:]))  # b is the same for all samples
    outputs: dict[int, Tensor] = {source: y.new_zeros(sample)}
    for member, call in members:
        data = [outputs[value] for _, value in member.inputs]
        if member.role is Role.LAYER:
            data = [like(data[0], weight_of(call))]
        outputs[member.outputs[0]] = data[0] if member.role is Role.PASS else call.run(data)
    back: dict[int, Tensor] = {end: minus(y, outputs[end])}
    for member, call in reversed(members):
        g = back.pop(member.outputs[0])
        for path, value in member.inputs:
            part = _transposed(member, call, path, g, torch.Size((*shape[:1], *outputs[value].shape[1:])))
            back[value] = back[value] + part if value in back else part
    return back[source]


def _transposed(member: Op, call: Operation, path: Path, g: Tensor, shape: Size) -> Tensor:
    """The transpose of one call of a sum, applied to g: what goes back to the input at ``path``, of ``shape``."""
    if member.role is Role.PASS:
        return g
    rule = member.rule
    if rule.factor is not None:
        factor = rule.factor(call, path)
        return g if isinstance(factor, int) and factor == 1 else factor * g
    assert rule.linear is not None
    assert rule.apply is not None
    return rule.apply(rule.linear(call), g, shape)

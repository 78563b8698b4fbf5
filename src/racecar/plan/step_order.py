"""The order of the steps from a layer's operation back to d_m: what is undone, and what is applied again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from racecar.plan.graph import Graph, Op
from racecar.plan.step import Action, Step, take
from racecar.rules.roles import Role


def out_of(graph: Graph, op: Op, value: int) -> list[Step]:
    """The steps from ``value``, the d_(m+1) of a layer, back to the output of its operation ``op``.

    Norms, activations and the affine operations after them are not undone: d'_(m+1) has their range already.
    """
    chain = graph.chain(op, value)
    ranges = [i for i, between in enumerate(chain) if between.role.sets_range]
    first = ranges[-1] if ranges else -1  # the first in forward order
    return [Step(Action.UNDO, x) for i, x in enumerate(chain) if x.role.moves or (x.role is Role.AFFINE and i > first)]


def into_d(graph: Graph, op: Op, approach: Sequence[Op], redo: Sequence[Op]) -> list[Step]:
    """The steps from a layer's operation back to d_m.

    Norms and activations are applied again before up-sampling, in the layout of the forward pass. They are applied
    after up-sampling if they work for one size only (a layer norm over a whole feature map).

    Args:
        op: the operation of the layer.
        approach: the operations between d_m and ``op``, nearest to ``op`` first.
        redo: the norms and activations to apply again, and the changes of layout between them, in forward order.
    """
    back = [Step(Action.UNDO, between) for between in approach if between.role is not Role.PASS]
    upsampling = next((i for i, step in enumerate(back) if step.op.role is Role.RESAMPLE), len(back))
    again = _again(redo, with_size=False)
    if not all(_keeps_axes(step.op) for step in back[upsampling:]):
        upsampling = len(back)
    if any(step.action is Action.MOVE for step in again):
        upsampling = len(back)
    pooling = back[upsampling].op if upsampling < len(back) else None
    lift = [Step(Action.LIFT, pooling)] if pooling is not None and again else []
    resized = pooling is not None or any(between.role is Role.RESAMPLE for between in redo)
    if again and resized and not _fits(graph, again, pooling, redo):
        return [Step(Action.UNDO, op), *back, *_again(redo, with_size=True)]
    return [Step(Action.UNDO, op), *back[:upsampling], *lift, *again, *back[upsampling:]]


def _again(ops: Sequence[Op], with_size: bool) -> list[Step]:
    """The steps that apply norms and activations again, and those that restore their layout before and undo it after.

    Args:
        ops: norms, activations and changes of layout or resolution, in forward order.
        with_size: whether changes of resolution are restored, too.
    """
    dependent = next((i for i, op in enumerate(ops) if _depends_on_layout(op)), len(ops))
    later = [i for i, op in enumerate(ops) if i > dependent and op.role.moves]
    shapes = [i for i in later if ops[i].role is not Role.RESAMPLE]
    # A change of resolution can be left out, unless the layout changed before it.
    moves = later if with_size else [i for i in later if shapes and i >= shapes[0]]
    steps = [Step(Action.UNDO, ops[i]) for i in reversed(moves)]
    for i, op in enumerate(ops):
        if op.role.keeps_layout:
            steps.append(Step(Action.REDO, op))
        elif i in moves:
            steps.append(Step(Action.MOVE, op))
    return steps


def _keeps_axes(op: Op) -> bool:
    """Whether an operation keeps the number, order and meaning of the dimensions."""
    return op.role is Role.RESAMPLE or op.rule.keeps_axes


def _depends_on_layout(op: Op) -> bool:
    """Whether an operation depends on the layout: norms, activations along a dimension, constants with a shape."""
    return op.role in (Role.NORM, Role.AFFINE) or (op.role is Role.ACTIVATION and not op.rule.pointwise)


def _fits(graph: Graph, again: Sequence[Step], pooling: Op | None, redo: Sequence[Op]) -> bool:
    """Whether norms and activations can be applied at the size before up-sampling, found by applying them to zeros.

    Args:
        again: the steps that apply them.
        pooling: the operation that up-sampling undoes; None if it is among ``redo``.
    """
    trace = graph.trace
    calls = [trace.calls[i] for i in trace.links]
    operations = {step.op.ordinal: step.op.operation(calls) for step in again}
    last = trace.tensor(pooling.source if pooling else redo[-1].outputs[0])
    y = torch.zeros_like(trace.tensor(pooling.outputs[0]) if pooling else last)
    if pooling is not None and pooling.rule.lift is not None:
        y = pooling.rule.lift(pooling.operation(calls), y, last.shape)
    shapes = {v: trace.tensor(v).shape for step in again for v in (step.op.source, step.op.outputs[0])}
    expected = y.shape
    try:
        for step in again:
            y = take(step, y, operations[step.op.ordinal], shapes)
    except (RuntimeError, ValueError, IndexError):
        return False
    return y.shape == expected

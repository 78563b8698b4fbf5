"""The steps from a layer's operation back to d_m: what is undone, what is applied again, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from racecar.plan.graph import Graph, Op
from racecar.plan.step import Action, Step, take, undo
from racecar.rules.roles import Role


def into_d(graph: Graph, op: Op, approach: Sequence[Op], redo: Sequence[Op], own_padding: Op | None) -> list[Step]:
    """From a layer's operation to d_m.

    Norms and activations are applied again before up-sampling, in the layout in which the forward pass applied them;
    after it where they fit one size only (a layer norm over a whole map).
    """
    passed = [one for one in approach if one.role is not Role.PASS]
    back = [Step(Action.FOLD, one) if one is own_padding else undo(one) for one in passed]
    first = next((i for i, step in enumerate(back) if step.op.role is Role.RESAMPLE), len(back))
    again = _again(redo, with_size=False)
    if any(step.op.role is not Role.RESAMPLE and step.op.kind not in _KEEP_LAYOUT for step in back[first:]):
        first = len(back)
    if any(step.action is Action.MOVE for step in again):
        first = len(back)
    early = [*back[:first], *([Step(Action.LIFT, back[first].op)] if first < len(back) and again else []), *again]
    resized = first < len(back) or any(one.role is Role.RESAMPLE for one in redo)
    if again and resized and not _fits(graph, again, back[first].op if first < len(back) else None, redo):
        return [Step(Action.UNDO, op), *back, *_again(redo, with_size=True)]
    return [Step(Action.UNDO, op), *early, *back[first:]]


_KEEP_LAYOUT = ("pad", "narrow", "flip", "roll")


def _again(ops: Sequence[Op], with_size: bool) -> list[Step]:
    """Apply norms and activations again, going back to their layout (and size) and forth where that matters."""
    fussy = next((i for i, op in enumerate(ops) if _fussy(op)), len(ops))
    later = [i for i, op in enumerate(ops) if i > fussy and op.role.moves]
    shapes = [i for i in later if ops[i].role is not Role.RESAMPLE]
    # A change of resolution can be left out, unless the layout changed before it.
    moves = later if with_size else [i for i in later if shapes and i >= shapes[0]]
    steps = [undo(ops[i]) for i in reversed(moves)]
    for i, op in enumerate(ops):
        if op.role.keeps_layout:
            steps.append(Step(Action.REDO, op))
        elif i in moves:
            steps.append(Step(Action.MOVE, op))
    return steps


def _fussy(op: Op) -> bool:
    """Whether the layout matters: norms, activations along a dimension, constants of some shape."""
    return op.role in (Role.NORM, Role.AFFINE) or (op.role is Role.ACTIVATION and not op.pointwise)


def _fits(graph: Graph, again: Sequence[Step], pooling: Op | None, redo: Sequence[Op]) -> bool:
    """Try whether norms and activations work at the size that the reverse pass has before up-sampling."""
    trace = graph.trace
    calls = [trace.calls[i] for i in trace.links]
    operations = {step.op.ordinal: step.op.operation(calls) for step in again}
    last = trace.tensor(pooling.source if pooling else redo[-1].outputs[0])
    y = torch.zeros_like(trace.tensor(pooling.outputs[0]) if pooling else last)
    if pooling is not None and pooling.rule is not None and pooling.rule.lift is not None:
        y = pooling.rule.lift(pooling.operation(calls), y, last.shape)
    shapes = {v: trace.tensor(v).shape for step in again for v in (step.op.source, step.op.outputs[0])}
    expected = y.shape
    try:
        for step in again:
            y = take(step, y, operations[step.op.ordinal], shapes)
    except (RuntimeError, ValueError, IndexError):
        return False
    return y.shape == expected

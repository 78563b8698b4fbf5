"""Back through the first matrix of a way at once: x (WᵀW) instead of (x Wᵀ) W.

Where a reverse pass starts at a linear layer's own output, as at a transformer's query, key and value or at the gates
of an MLP, both are the same; and the Gram matrix WᵀW is small where the layer is wide.
"""

from __future__ import annotations

from torch import Tensor

from racecar.plan.entry import Entry
from racecar.plan.step import Action
from racecar.rules import linear
from racecar.rules.operation import Operation


def applies(entry: Entry) -> bool:
    """Whether an entry's first step takes x Wᵀ + b, which nothing has changed, back to x."""
    layer = entry.layer
    if layer is None or entry.upper is not None or layer.d != layer.op.source or layer.out != layer.op.outputs[0]:
        return False
    action, op = entry.steps[0]
    return action is Action.UNDO and op is layer.op and op.rule is not None and op.rule.apply is linear.linear


def back(operation: Operation, x: Tensor) -> Tensor | None:
    """x (…, in) → x (WᵀW) for an operation ``F.linear``; None where (x Wᵀ) W takes fewer multiplications."""
    weight = operation.get(1, "weight")
    outer, inner = weight.shape
    rows = x.numel() // max(1, inner)
    if inner * (rows + outer) >= rows * outer:
        return None
    return linear.like(x, weight) @ (weight.mT @ weight)

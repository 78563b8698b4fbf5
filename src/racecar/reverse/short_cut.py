"""A faster reverse step through a linear layer at which the reverse pass starts: x (WᵀW) instead of (x Wᵀ) W.

Both are the same where the reverse pass starts at the linear layer's own output, as at a transformer's query, key and
value or at the gates of an MLP. The Gram matrix WᵀW is small where the layer is wide.
"""

from __future__ import annotations

from torch import Tensor

from racecar.plan.entry import Entry
from racecar.plan.step import Action
from racecar.rules import linear
from racecar.rules.operation import Operation


def applies(entry: Entry) -> bool:
    """Whether the reverse pass of an entry starts at x Wᵀ + b, with x = d_m and nothing in between."""
    layer = entry.layer
    if layer is None or entry.upper is not None or layer.d != layer.op.source or layer.out != layer.op.outputs[0]:
        return False
    action, op = entry.steps[0]
    return action is Action.UNDO and op is layer.op and op.rule.apply is linear.linear


def through_gram(operation: Operation, x: Tensor) -> Tensor | None:
    """x (…, in) → x (WᵀW) for an operation ``F.linear``; None where (x Wᵀ) W takes fewer multiplications."""
    weight = operation.get(1, "weight")
    outputs, inputs = weight.shape
    rows = x.numel() // max(1, inputs)
    if inputs * (rows + outputs) >= rows * outputs:
        return None
    return linear.like(x, weight) @ (weight.mT @ weight)

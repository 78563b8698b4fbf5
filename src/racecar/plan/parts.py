"""Parts of a tensor: a slice, a chunk and an index are one thing, however it is written.

What leaves elements out is a selection. Straight before a layer the part is the layer's d: the layer is compared with
what it sees, and the layer below starts again from its forward output. Where a norm or an activation comes first, and
at the model's input, d is another tensor; there, and in modes "full" and "input", the reverse pass goes on through the
selection, and zeros come back for what was left out. Several parts of one tensor are a fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from racecar.plan.graph import Op
from racecar.rules.registry import Rule
from racecar.rules.roles import Role
from racecar.rules.shape import PARTS, is_crop
from racecar.watch.calls import Call


def role(op: Op, call: Call, x: Tensor, made: Tensor) -> Role:
    """SELECT where a call on ``x`` leaves elements out, SHAPE where it only rearranges them."""
    if op.kind == "pad":
        sizes = op.bind(call).get(1, "pad")
        return Role.SELECT if max(sizes) <= 0 > min(sizes) else Role.SHAPE
    if call.func is Tensor.__getitem__ and not is_crop(call.args[1]):
        op.rule = Rule(Role.SELECT, op.kind)
        if any(not isinstance(part, (int, slice, type(None), type(Ellipsis))) for part in _index(call)):
            return Role.SELECT
    return Role.SHAPE if call.func in PARTS and made.numel() == x.numel() else Role.SELECT


def _index(call: Call) -> tuple[object, ...]:
    index = call.args[1]
    return index if isinstance(index, tuple) else (index,)


def apart(ops: Sequence[Op]) -> list[Op]:
    """One operation for each part that is used of a call that makes several: so they fork, as several slices do."""
    used = {value for op in ops for _, value in op.inputs}
    found: list[Op] = []
    for op in ops:
        slots = [i for i, value in enumerate(op.outputs) if value in used]
        if op.role is Role.SELECT and slots:
            found += [replace(op, outputs=(op.outputs[i],), slot=i) for i in slots]
        else:
            found.append(op)
    return found


def passable(op: Op) -> bool:
    """Whether a reverse pass can go on through a selection: not where the data itself chooses."""
    return op.role is Role.SELECT and op.kind != "topk"

"""Selections: operations that take a part of a tensor, written as a slice, a chunk or an index.

A selection directly before a layer gives the layer's d: the reconstruction is compared with what the layer sees, and
the layer below starts again from its forward output. If a norm or an activation stands between the selection and the
layer, or if the selection is from the model's input, d is another tensor. There, and in modes "full" and "input", the
reverse pass goes through the selection, with zeros for the elements that were not selected. Several selections from one
tensor are a fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from racecar.plan.graph import Op
from racecar.rules.registry import Rule
from racecar.rules.roles import Role
from racecar.rules.shape import PARTS, index_parts, is_crop
from racecar.watch.calls import Call


def role(op: Op, call: Call, x: Tensor, out: Tensor) -> Role:
    """The role of a call on ``x``: SELECT if ``out`` lacks elements of ``x``, SHAPE if it only rearranges them."""
    if op.kind == "pad":
        sizes = op.bind(call).get(1, "pad")
        return Role.SELECT if max(sizes) <= 0 > min(sizes) else Role.SHAPE
    if call.func is Tensor.__getitem__ and not is_crop(call.args[1]):
        op.rule = Rule(Role.SELECT, op.kind)
        if any(not isinstance(part, (int, slice, type(None), type(Ellipsis))) for part in index_parts(call.args[1])):
            return Role.SELECT
    return Role.SHAPE if call.func in PARTS and out.numel() == x.numel() else Role.SELECT


def split_parts(ops: Sequence[Op]) -> list[Op]:
    """The operations, with one selection per used output in place of a call with several, such as ``chunk``.

    The parts of a chunk are then a fork, as several slices are.
    """
    used = {value for op in ops for _, value in op.inputs}
    split: list[Op] = []
    for op in ops:
        slots = [i for i, value in enumerate(op.outputs) if value in used]
        if op.role is Role.SELECT and slots:
            split += [replace(op, outputs=(op.outputs[i],), slot=i) for i in slots]
        else:
            split.append(op)
    return split


def reversible(op: Op) -> bool:
    """Whether ``op`` is a selection that the reverse pass can go through: not if the data chooses the elements."""
    return op.role is Role.SELECT and op.kind != "topk"

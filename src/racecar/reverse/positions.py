"""Which positions of an activation count: a mask of the model's inputs, followed through the model.

A mark is True where a position counts and False where it is padding, with the dimensions of a value, each as long or 1.
What moves elements about moves the mark; what works on every position by itself leaves it; what is made of several
positions counts if one of them does (a mean over tokens); what an attention makes has the position of its query. Where
nobody can know, the mark is lost, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor
from torch.nn import functional as F

from racecar.plan.causal import causal_cut
from racecar.plan.composites import BINARY
from racecar.plan.graph import BADDBMM, Op
from racecar.reverse.values import Finder
from racecar.rules.conv import conv, conv_transpose
from racecar.rules.linear import addmm
from racecar.rules.operation import FIRST
from racecar.rules.pool import reduced_dims
from racecar.rules.roles import Role
from racecar.rules.shape import cat, expand, reshape
from racecar.rules.torch_functions import forms

_PRODUCTS = frozenset((*forms("matmul", "mm", "bmm", "__matmul__"), *BADDBMM))
_SAME = (Role.NORM, Role.ACTIVATION, Role.AFFINE, Role.PASS)


class Lost(NamedTuple):
    """Positions that cannot be followed."""

    place: str
    """The operation, and where it stands."""


Mark = Tensor | Lost | None
"""None: all of a value counts."""


def follow(ops: Sequence[Op], find: Finder, inputs: Sequence[Tensor | None]) -> dict[int, Mark]:
    """The marks of all values that ``ops`` make of the model's inputs, which have marks of their own."""
    found: dict[int, Mark] = {}
    for value, at in enumerate(find.layer_graph.values):
        if at.call < 0:
            found[value] = inputs[at.slot]
    for op in ops:
        known = [found.get(value) for _, value in op.followed]
        if all(one is None for one in known):
            continue
        marks = _through(op, known, find, found)
        for i, value in enumerate(op.outputs):
            mark = marks[op.slot + i] if isinstance(marks, list) else marks
            found[value] = Lost(find.layer_graph.place(op)) if mark is None else mark
    return found


def _through(op: Op, known: Sequence[Mark], find: Finder, found: Mapping[int, Mark]) -> Any:
    """The mark of what an operation makes, or a list of one for each part; None where it is lost. ``found``: before."""
    lost = next((one for one in known if isinstance(one, Lost)), None)
    rule = op.rule
    role = None if rule is None else rule.role
    if role is Role.PASS and len(known) == 1:
        return known[0]
    if op.func is None:  # written into a part of the first
        return known[0] if len(known) > 1 else None
    if role in _SAME or op.held[0] in BINARY:
        made = fit(_together(known), find.tensor(op.outputs[0]).shape)
        return lost if made is None else made
    if lost is not None:
        return lost
    mark = known[0]
    if op.func is F.scaled_dot_product_attention:
        return _any(mark, [-1]) if isinstance(mark, Tensor) else None
    if op.held[0] in _PRODUCTS:
        return _product(op, known, find)
    if op.func is torch.einsum:
        return _einsum(op, known)
    if rule is not None and rule.apply is cat:
        return _joined(op, known, find)
    if not isinstance(mark, Tensor):
        return None
    if role in (Role.SHAPE, Role.SELECT) and op.module is None and not op.by_vjp and op.inputs[0][0] in FIRST:
        return None if op.kind == "topk" else _moved(op, mark, find)
    if len(known) > 1:
        return None
    if op.func is F.embedding:
        return mark.unsqueeze(-1)
    if op.func is F.linear or (rule is not None and rule.apply is addmm):
        return _any(mark, [-1])
    shape = find.tensor(op.outputs[0]).shape
    if rule is not None and rule.apply in (conv, conv_transpose):
        return _convolved(op, mark, find, found)
    if role is Role.RESAMPLE and rule is not None and rule.lift is not None:
        operation = op.operation(find.calls)
        gone = reduced_dims(operation.args, operation.kwargs, mark.dim())
        mark = _any(mark, gone)
        return mark if mark.dim() == len(shape) else mark.squeeze(gone)
    if role is Role.RESAMPLE or op.module is not None or (role is Role.LAYER and not op.by_vjp) or op.func is F.glu:
        return fit(mark, shape)
    return None


def _together(marks: Sequence[Mark]) -> Tensor | None:
    """What is made of several values, element by element, counts if all of them do."""
    found: Tensor | None = None
    for one in marks:
        if isinstance(one, Tensor) and one is not found:
            found = one if found is None else found & one
    return found


def fit(mark: Tensor | None, shape: Size) -> Tensor | None:
    """A mark as one of a value of that shape, aligned at the last dimension; None if it is not."""
    if mark is None or mark.dim() > len(shape):
        return None
    if mark.dim() < len(shape):
        mark = mark.reshape(*(1,) * (len(shape) - mark.dim()), *mark.shape)
    return mark if all(one in (1, size) for one, size in zip(mark.shape, shape, strict=True)) else None


def _any(mark: Tensor, dims: Sequence[int]) -> Tensor:
    """Mixed along some dimensions: what comes out counts if any of it does."""
    long = [d for d in dims if mark.shape[d] > 1]
    return mark.amax(long, keepdim=True) if long else mark


def _product(op: Op, known: Sequence[Mark], find: Finder) -> Tensor | None:
    """Of matrices: a row of the left with a column of the right."""
    sides: list[Mark] = []
    left = ((1,), ("batch1",)) if op.held[0] in BADDBMM else FIRST
    for (path, _), mark in zip(op.followed, known, strict=True):
        if isinstance(mark, Tensor):
            if mark.dim() < 2:
                return None
            sides.append(_any(mark, [-1] if path in left else [-2]))
    return fit(_together(sides), find.tensor(op.outputs[0]).shape)


def _convolved(op: Op, mark: Tensor, find: Finder, found: Mapping[int, Mark]) -> Tensor | None:
    """Positions keep their places where there are as many as before, or were before padding; or where those that a
    padding of the whole kernel adds are cut off at the end again, so that what is made at t is of positions up to t."""
    dims, graph = int(op.kind[-2]), find.layer_graph.graph
    before, after = find.tensor(op.source).shape, find.tensor(op.outputs[0]).shape
    maker = graph.maker.get(op.source)
    if maker is not None and maker.kind == "pad" and find.tensor(maker.source).shape[-dims:] == after[-dims:]:
        inner = found.get(maker.source)
        mark = inner if isinstance(inner, Tensor) else mark
    added = [new - old for old, new in zip(before[-dims:], after[-dims:], strict=True)]
    if any(added) and causal_cut(graph, op, lambda one: one.operation(find.calls), find.tensor) is not None:
        longer = [n if mark.shape[d - dims] > 1 else 0 for d, n in enumerate(added)]
        mark = F.pad(mark, [n for one in longer[::-1] for n in (0, one)])
    return fit(_any(mark, [-dims - 1]), after)


def _einsum(op: Op, known: Sequence[Mark]) -> Tensor | None:
    """Dimensions are followed by their letters."""
    equation = op.args[0].replace(" ", "") if isinstance(op.args[0], str) else ""
    if "->" not in equation or "." in equation:
        return None
    before, after = equation.split("->")
    marks: list[Mark] = []
    for (path, _), mark in zip(op.followed, known, strict=True):
        if isinstance(mark, Tensor):
            letters = before.split(",")[int(path[-1]) - (len(path) == 1)]
            if len(set(letters)) < len(letters):
                return None
            gone = [d for d, letter in enumerate(letters) if letter not in after]
            kept = [letter for letter in letters if letter in after]
            order = sorted(range(len(kept)), key=lambda i: after.index(kept[i]))
            left = (_any(mark, gone).squeeze(gone) if gone else mark).permute(order)
            sizes = dict(zip((kept[i] for i in order), left.shape, strict=True))
            marks.append(left.reshape([sizes.get(letter, 1) for letter in after]))
    return _together(marks)


def _moved(op: Op, mark: Tensor, find: Finder) -> list[Tensor] | Tensor:
    """Where elements are moved about, and maybe some left out, the mark is moved with them."""
    (_, value), *others = op.inputs
    wide = mark.expand(find.tensor(value).shape)
    apply = op.rule.apply if op.rule is not None else None
    if apply is reshape:
        return _narrow(wide.reshape(find.tensor(op.outputs[0]).shape))
    if apply is expand:
        return _narrow(wide.expand(find.tensor(op.outputs[0]).shape))
    operation = op.operation(find.calls)
    if op.kind == "pad":  # to be reflected, it cannot be bool
        return _narrow(operation(wide.float()) != 0)
    out = operation.run([wide, *(find.tensor(one) for _, one in others)])
    return _narrow(out) if isinstance(out, Tensor) else [_narrow(one) for one in out if isinstance(one, Tensor)]


def _narrow(mark: Tensor) -> Tensor:
    """Of length 1 where all is alike."""
    for d in range(mark.dim()):
        if mark.stride(d) == 0 and mark.shape[d] > 1:
            mark = mark.narrow(d, 0, 1)
    return mark


def _joined(op: Op, known: Sequence[Mark], find: Finder) -> Tensor:
    """Side by side; constants, such as a class token, count."""
    operation = op.operation(find.calls)
    given = dict(zip((path[-1] for path, _ in op.inputs), zip(known, op.inputs, strict=True), strict=True))
    parts: list[tuple[Tensor | None, Size]] = []
    for i, part in enumerate(operation.get(0, "tensors")):
        if i in given:
            mark, (_, value) = given[i]
            assert not isinstance(mark, Lost)
            parts.append((mark, find.tensor(value).shape))
        else:
            parts.append((None, part.shape))
    some = next(mark for mark, _ in parts if mark is not None)
    dim = operation.get(1, "dim", 0) % some.dim()
    marks = [some.new_ones((1,) * some.dim()) if mark is None else mark for mark, _ in parts]
    if all(mark is not None and mark.shape[dim] == 1 < shape[dim] for mark, shape in parts):  # halves of channels
        together = _together(marks)
        assert together is not None
        return together
    sizes = [max(mark.shape[d] for mark in marks) for d in range(some.dim())]
    long = [
        mark.expand(*sizes[:dim], shape[dim], *sizes[dim + 1 :]) for mark, (_, shape) in zip(marks, parts, strict=True)
    ]
    return torch.cat(long, dim)

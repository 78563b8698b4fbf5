"""Run a plan backwards: the whole way, layer by layer, or for the input alone; on the batch or on a slice of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Size, Tensor

from racecar.errors import RuleError
from racecar.plan.batch import Batch, place_in
from racecar.plan.graph import Op
from racecar.plan.layers import Layer, Plan
from racecar.plan.places import places
from racecar.plan.plan import Entry
from racecar.plan.slices import cut, cut_constants, cut_shape
from racecar.plan.steps import Step, take
from racecar.rules.norm import first_rows, has_batch_statistics
from racecar.rules.registry import Operation
from racecar.run import gram, recompute
from racecar.run.reading import Reading
from racecar.run.rows import FirstRows, part_of
from racecar.watch.calls import Call, outputs
from racecar.watch.names import shown


class Needs:
    """What the way back through some entries needs of the forward pass.

    Args:
        entries: of a route.
        gradient: what the gradient of a term reaches, as in :class:`racecar.Racecar`.
    """

    def __init__(self, entries: Sequence[Entry], gradient: str = "both") -> None:
        ops: dict[int, tuple[Op, str]] = {}
        values: dict[int, None] = {}
        shapes: dict[int, None] = {}
        starts, again, wholes = set[int](), set[int](), dict[int, None]()
        for entry in entries:
            layer = entry.layer
            assert layer is not None
            values[layer.d] = None
            if entry.upper is None and gradient == "weights" and recompute.possible(layer):
                again.add(layer.index)
                values[layer.op.source] = None
                for op in (layer.op, *layer.onward):
                    ops.setdefault(op.ordinal, (op, entry.name))
                    shapes[op.outputs[0]] = None
                    if op.role == "norm":
                        wholes[op.source] = None
                    if recompute.is_random(op):
                        values.update(dict.fromkeys((op.source, op.outputs[0])))
            elif entry.upper is None:
                values[layer.out] = None
                starts.add(layer.out)
            for action, op in entry.steps:
                ops.setdefault(op.ordinal, (op, entry.name))
                if action != "redo":
                    shapes[op.source] = None
                if action == "move":
                    shapes[op.outputs[0]] = None
        self.entries = tuple(reversed(entries))
        self.starts = frozenset(starts)
        """Values from which a way back starts as they are."""
        self.own = self.starts - {entry.layer.d for entry in entries if entry.layer is not None}
        """Those of which nobody keeps the whole: a slice of them has memory of its own."""
        self.again = frozenset(again)
        """Layers, by index, whose output is computed again, for a way that starts there."""
        self.live = self.starts | {e.layer.d for e in entries if e.layer and gram.short_cut(e)}
        self.constant = frozenset(values) if gradient == "weights" else frozenset(values) - self.live
        """Values through which no gradient flows, unless it flows through all."""
        if gradient == "both":
            self.constant = frozenset()
        self.ops = tuple(ops.values())
        self.values = tuple(values)
        self.wholes = tuple(wholes)
        """Values that are needed of the whole batch: inputs of norms that are applied again as they were."""
        self.shapes = tuple(dict.fromkeys((*shapes, *values)))
        self.places = places(entries)
        """Where batch norms are applied again."""


@dataclass
class Tape:
    """What one forward pass leaves behind for the way back; nothing else of the pass is held, so that the rest of its
    activations can be freed."""

    size: int
    """Samples in the batch."""
    samples: int
    """Samples that the way back sees, from the start of the batch."""
    shapes: dict[int, Size]
    tensors: dict[int, Tensor]
    wholes: dict[int, Tensor]
    """Of the whole batch, as constants."""
    operations: dict[int, Operation]
    """With real arguments."""


Rows = dict[int, Tensor]
"""Value → its first samples, in memory of their own, where a way back starts."""


def record(needs: Needs, find: Finder, size: int, samples: int, rows: Rows | None = None) -> Tape:
    """The tape of one forward pass.

    Args:
        needs: what the way back asks for.
        find: finds the tensors of the pass.
        size, samples: as in a tape.
        rows: those that were found before.
    """
    rows = rows or {}

    def batch(value: int) -> Batch | None:
        return find.batch(value) if samples < size else None

    shapes = {value: cut_shape(find.tensor(value).shape, batch(value), size, samples) for value in needs.shapes}
    tensors: dict[int, Tensor] = {}
    for value in needs.values:
        tensor, where = find.tensor(value), batch(value)
        if value in needs.constant:
            tensor = tensor.detach()
            tensor = tensor if where is None else cut(tensor, where, size, samples)
        elif where is not None:
            if torch.compiler.is_compiling():
                part = rows.get(value)
                if part is None and where == Batch(0) and value in needs.starts:
                    part = find.normed_rows(value, size, samples)
                tensor = cut(tensor, where, size, samples) if part is None else FirstRows.apply(tensor, part)
            else:
                tensor = part_of(tensor, where, size, samples, own=value in needs.own)
        tensors[value] = tensor
    operations: dict[int, Operation] = {}
    for op, name in needs.ops:
        operations[op.ordinal] = operation = op.operation(find.calls, name)
        if samples < size and (op.role in _WITH_CONSTANTS or op.kind == "cat" or op.ordinal in find.plan.per_sample):
            pairs = zip(op.members, operation.members, strict=True) if op.members else ((op, operation),)
            for one, its in pairs:
                where = batch(one.outputs[0])
                if where is not None:
                    cut_constants(its, find.tensor(one.outputs[0]).shape, where, size, samples)
    wholes = {value: find.tensor(value).detach() for value in needs.wholes}
    return Tape(size, samples, shapes, tensors, wholes, operations)


_WITH_CONSTANTS = ("affine", "activation", "norm")


class Finder:
    """Finds the tensor of a value among the calls of a pass."""

    def __init__(self, plan: Plan, calls: Sequence[Call | None], inputs: Sequence[Tensor]) -> None:
        self.plan, self.calls, self.inputs = plan, calls, inputs

    def look(self, value: int) -> Tensor | None:
        """What the maker returned, or what a user was given; None if torch.compile hides both."""
        call, slot = self.plan.values[value]
        if call < 0:
            return self.inputs[slot]
        made = self.calls[call]
        if made is not None:
            outs = (made.kept,) if isinstance(made.kept, Tensor) else outputs(made)
            if slot < len(outs):
                return outs[slot]
        for op in self.plan.graph.users.get(value, ()):
            user = self.calls[op.ordinal]
            if user is not None and op.called is not None:
                return _at(user, next(path for path, used in op.inputs if used == value))
        return None

    def tensor(self, value: int) -> Tensor:
        """The tensor of a value; where both ends are hidden it is made again, which the compiler does only once."""
        tensor = self.look(value)
        op = self.plan.graph.maker.get(value)
        if tensor is None and op is not None and op.role in ("activation", "shape", "resample", "pass", "affine"):
            out = op.operation(self.calls)(self.tensor(op.source))
            tensor = out if isinstance(out, Tensor) else None
        if tensor is None:
            raise RuntimeError(f"torch.compile hides the tensor between {self.plan.around(value)}; use it uncompiled")
        return tensor

    def batch(self, value: int) -> Batch | None:
        """Where the samples run in a value; None where that is lost."""
        return place_in(self.plan, value, lambda one: self.tensor(one).shape)

    def all_rows(self, needs: Needs, size: int, samples: int) -> Rows:
        """The first samples of values where a way back starts, in memory of their own: for views of them a compiler
        would keep the whole values. Not of those that a batch norm's input, which is kept, gives again."""
        found = {}
        for value in needs.values:
            if value in needs.own and self.batch(value) == Batch(0):
                used = self.plan.graph.users.get(value, ())  # a view of it, as of a qkv, keeps it whole anyway
                if any(op.role != "shape" for op in used) and self._norm(value) is None:
                    tensor = self.tensor(value).detach()
                    some = torch.arange(tensor.shape[0] // size * samples, device=tensor.device)
                    found[value] = tensor.index_select(0, some)  # a clone would be taken for the view
        return found

    def normed_rows(self, value: int, size: int, samples: int) -> Tensor | None:
        """The first samples of a batch norm's output, which the compiler would have to write first, without the rest;
        None of other values."""
        norm = self._norm(value)
        if norm is None:
            return None
        x = self.tensor(self.plan.graph.maker[value].source).detach()
        return first_rows(norm, x, cut(x, Batch(0), size, samples))

    def _norm(self, value: int) -> Operation | None:
        """The batch norm that made a value by the statistics of its input; None of other values."""
        op = self.plan.graph.maker.get(value)
        if op is None or op.role != "norm" or op.members:
            return None
        operation = op.operation(self.calls)
        return operation if has_batch_statistics(operation) else None


def _at(call: Call, path: Sequence[int | str]) -> Tensor:
    holder: Any = call.kwargs if isinstance(path[0], str) else call.args
    for step in path:
        holder = holder[step]
    return holder


def run(
    needs: Needs, tape: Tape, input_activation: Callable[[Tensor], Tensor] | None, reading: Reading | None = None
) -> dict[int, Tensor]:
    """d'_m by layer index, for every layer that was asked for."""
    return {layer.index: y for layer, y in steps(needs, tape, input_activation, reading)}


def steps(
    needs: Needs, tape: Tape, input_activation: Callable[[Tensor], Tensor] | None, reading: Reading | None = None
) -> Iterator[tuple[Layer, Tensor]]:
    """Every layer that was asked for, last first, with its d'_m. ``reading``: of the statistics of batch norms."""
    reverse: dict[int, Tensor] = {}
    for entry in needs.entries:
        layer = entry.layer
        assert layer is not None
        y, left = _start(entry, needs, tape, reverse)
        for step in left:
            here = needs.places.get((layer.index, step.op.ordinal)) if step.action == "redo" else None
            if reading is not None and here is not None:
                y = reading.step(here, tape.operations[step.op.ordinal], partial(_step, step, y, tape, entry))
            else:
                y = _step(step, y, tape, entry)
        if input_activation is not None and layer.reads_input:
            y = input_activation(y)
        shape = tape.shapes[layer.d]
        if y.shape != shape:
            raise RuleError(
                f"the way back through layer {shown(layer.name)!r} gave shape {tuple(y.shape)}, d_m has {tuple(shape)}"
            )
        reverse[layer.index] = y
        yield layer, y


def _start(entry: Entry, needs: Needs, tape: Tape, reverse: Mapping[int, Tensor]) -> tuple[Tensor, Sequence[Step]]:
    """Where an entry's way back starts, and the steps from there."""
    assert entry.layer is not None
    if entry.upper is not None:
        return reverse[entry.upper.index], entry.steps
    if gram.short_cut(entry):
        first, *others = entry.steps
        y = gram.back(tape.operations[first.op.ordinal], tape.tensors[entry.layer.d])
        if y is not None:
            return y, others
    if entry.layer.index in needs.again:
        return recompute.recompute(entry.layer, tape), entry.steps
    return tape.tensors[entry.layer.out], entry.steps


def _step(step: Step, y: Tensor, tape: Tape, entry: Entry) -> Tensor:
    x = take(step, y, tape.operations[step.op.ordinal], tape.shapes)
    if step.action in ("undo", "fold", "part"):
        shape = tape.shapes[step.op.source]
        if not isinstance(x, Tensor) or x.shape != shape:
            rule = step.op.rule.apply if step.op.rule is not None else None
            got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise RuleError(
                f"rule {getattr(rule, '__name__', rule)!r} for {step.op.kind} in layer {shown(entry.name)!r} returned "
                f"{got}, but the operation's input has shape {tuple(shape)}"
            )
    return x

"""The reverse pass: the entries of a plan run backwards, on the whole batch or on a slice of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from torch import Tensor

from racecar.errors import RuleError
from racecar.plan.entry import Entry
from racecar.plan.layer import Layer
from racecar.plan.step import Action, Step, take
from racecar.reverse import recompute, short_cut
from racecar.reverse.needs import Needs
from racecar.reverse.norm_statistics import PassStatistics
from racecar.reverse.tape import Tape
from racecar.rules.operation import Operation
from racecar.watch.names import shown


def run(
    needs: Needs,
    tape: Tape,
    input_activation: Callable[[Tensor], Tensor] | None,
    statistics: PassStatistics | None = None,
) -> dict[int, Tensor]:
    """Layer index → d'_m, for every layer of the entries."""
    return {layer.index: y for layer, y in steps(needs, tape, input_activation, statistics)}


def steps(
    needs: Needs,
    tape: Tape,
    input_activation: Callable[[Tensor], Tensor] | None,
    statistics: PassStatistics | None = None,
) -> Iterator[tuple[Layer, Tensor]]:
    """Every layer of the entries with its d'_m, last layer first.

    Args:
        needs: the entries, and what they need from the forward pass.
        tape: what they need, of one forward pass.
        input_activation: applied to the rebuilt input of the model.
        statistics: what batch norms read and record; None: each norm uses its own statistics alone.
    """
    reverse: dict[int, Tensor] = {}
    for entry in needs.entries:
        layer = entry.layer
        assert layer is not None
        y, remaining = _start(entry, needs, tape, reverse)
        for step in remaining:
            action, op = step
            operation = tape.operations[op.ordinal]
            norms = needs.norms.get((layer.index, op.ordinal)) if action is Action.REDO else None
            if statistics is not None and norms is not None:
                operation = statistics.attach(norms, operation)
            y = one_step(step, y, tape, entry, operation)
        if input_activation is not None and layer.reads_input:
            y = input_activation(y)
        shape = tape.shapes[layer.d]
        if y.shape != shape:
            raise RuleError(
                f"the reverse pass through layer {shown(layer.name)!r} gave shape {tuple(y.shape)}, but d_m has "
                f"{tuple(shape)}"
            )
        reverse[layer.index] = y
        yield layer, y


def _start(entry: Entry, needs: Needs, tape: Tape, reverse: Mapping[int, Tensor]) -> tuple[Tensor, Sequence[Step]]:
    """The tensor from which the reverse pass of an entry starts, and the steps that remain from there."""
    assert entry.layer is not None
    if entry.upper is not None:
        return reverse[entry.upper.index], entry.steps
    if entry.layer.index in needs.short:
        first, *others = entry.steps
        y = short_cut.through_gram(tape.operations[first.op.ordinal], tape.tensors[entry.layer.d])
        if y is not None:
            return y, others
    if entry.layer.index in needs.recomputed:
        return recompute.recompute(entry.layer, tape), entry.steps
    return tape.tensors[entry.layer.out], entry.steps


def one_step(step: Step, y: Tensor, tape: Tape, entry: Entry, operation: Operation) -> Tensor:
    """The result of one step of an entry on y; raises a RuleError if a rule returns another shape than it must."""
    (action, op), masks = step, tape.masks
    if masks is not None and action in (Action.REDO, Action.UNDO):
        operation = masks.attach(op, operation, y, tape.shapes)
    x = take(step, y, operation, tape.shapes)
    if action.undoes:
        shape = tape.shapes[op.source]
        if not isinstance(x, Tensor) or x.shape != shape:
            rule = op.rule.apply
            result = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise RuleError(
                f"rule {getattr(rule, '__name__', rule)!r} for {op.kind} in layer {shown(entry.name)!r} returned "
                f"{result}, but the operation's input has shape {tuple(shape)}"
            )
    return x

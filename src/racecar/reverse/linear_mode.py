"""Mode "linear": the error e = AᵀAh − h of every weighted operation A by itself, h its input.

A is the linear map of the operation: without its bias, with its own padding and, for a causal convolution, its cut.
Norms, activations and other layers play no part.

Where h is a constant (``gradient="weights"``), :mod:`racecar.reverse.linear_gradient` computes the gradient together
with the error. Autograd derives the operations for which it has no formula, such as those with a rule of the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from racecar.plan.entry import Entry
from racecar.plan.layer import Layer
from racecar.plan.step import output
from racecar.reverse.linear_gradient import WITH_FORMULA, Transpose, error_with_gradient
from racecar.reverse.needs import Needs
from racecar.reverse.reverse import one_step
from racecar.reverse.tape import Tape
from racecar.reverse.terms import squared_error
from racecar.rules import linear as matrix
from racecar.rules.operation import Operation


class LinearStep(NamedTuple):
    """One layer and the tensors of one forward pass, from which AᵀAh can be computed."""

    entry: Entry
    tape: Tape
    constant: bool
    """Whether h is a constant, so that the gradient reaches the weight alone."""


def steps(needs: Needs, tape: Tape) -> Iterator[tuple[Layer, LinearStep]]:
    """Every layer of the entries with its step, last layer first."""
    for entry in needs.entries:
        assert entry.layer is not None
        yield entry.layer, LinearStep(entry, tape, needs.gradient == "weights")


def run(needs: Needs, tape: Tape) -> dict[int, Tensor]:
    """Layer index → AᵀAh."""
    return {layer.index: ah_and_rebuilt(step.entry, tape)[1] for layer, step in steps(needs, tape)}


def error(h: Tensor, step: LinearStep, weight: Tensor | None, mask: Tensor | None) -> Tensor:
    """Σ w (AᵀAh − h)² of a layer, in the form of :func:`racecar.reverse.terms.squared_error`."""
    parts = _parts(step, h) if step.constant and weight is None else None
    if parts is None:
        return squared_error(h, ah_and_rebuilt(step.entry, step.tape)[1], weight, mask)
    layer, out = step.entry.layer, None
    if layer is not None and layer.stays and step.tape.masks is None:
        out = step.tape.tensors[layer.op.outputs[0]]
    return error_with_gradient(h, *parts, out)


def ah_and_rebuilt(entry: Entry, tape: Tape) -> tuple[Tensor, Tensor]:
    """Ah and AᵀAh of a layer."""
    layer, operations = entry.layer, dict(tape.operations)
    assert layer is not None
    rule, operation = layer.op.rule, operations[layer.op.ordinal]
    if rule.linear is not None:  # other rules leave the bias out by themselves
        operations[layer.op.ordinal] = operation = rule.linear(operation) or operation
    if layer.op.module is not None:  # a module taken as one operation is not called again: it may hold a state
        y = tape.tensors[layer.op.outputs[0]]
    else:
        y = tape.tensors[entry.d]
        for op in layer.linear_ops:
            if op is layer.op and rule.apply in WITH_FORMULA:
                y = matrix.like(y, matrix.weight_of(operation))
            y = output(operations[op.ordinal](y), op.slot)
    ah = y
    for step in entry.steps:
        y = one_step(step, y, tape, entry, operations[step.op.ordinal])
    return ah, y


def _parts(step: LinearStep, h: Tensor) -> tuple[Tensor, Tensor | None, Operation, Transpose] | None:
    """The arguments ``weight``, ``bias``, ``product`` and ``transpose`` of :func:`error_with_gradient`; None if the
    layer's gradient has no formula."""
    layer = step.entry.layer
    transpose = None if layer is None else layer.op.rule.apply
    if layer is None or transpose is None or transpose not in WITH_FORMULA or layer.linear_ops != (layer.op,):
        return None
    operation = step.tape.operations[layer.op.ordinal]
    weight = matrix.weight_of(operation)
    if transpose is matrix.matmul:
        if not operation.data_first or weight.dim() != 2:
            return None
    elif transpose is not matrix.linear and (
        step.tape.masks is not None or h.dim() != weight.dim() or operation.get(4, "padding") == "same"
    ):
        return None
    args = tuple(arg.detach() if isinstance(arg, Tensor) else arg for arg in operation.args)
    kwargs = {name: arg.detach() if isinstance(arg, Tensor) else arg for name, arg in operation.kwargs.items()}
    product = Operation(operation.func, args, kwargs, operation.at, operation.name)
    if transpose is matrix.matmul:
        return weight, None, product, transpose
    return weight, product.get(2, "bias"), matrix.without_bias(product), transpose


def keeps_nothing(needs: Needs) -> bool:
    """Whether gradients are computed together with the loss, so that recomputing in the backward pass saves nothing."""
    return needs.gradient == "weights" and any(entry.alone for entry in needs.entries)

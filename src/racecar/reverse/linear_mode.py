"""Mode "linear": the error e = AᵀAh − h of every weighted operation A by itself, h its input.

A is the linear map of the operation: without its bias, with its own padding and, for a causal convolution, its cut.
Norms, activations and other layers play no part.

Where h is a constant (``gradient="weights"``), the gradient of ‖e‖² with respect to the weight is a formula: for a
matrix 2(Ah eᵀ + Ae hᵀ), for a convolution the same two sums over positions. It is computed together with ‖e‖² in the
forward pass, so that only this gradient is kept for the backward pass, or two factors of it that are smaller still.
Autograd derives the operations for which this module has no formula, such as those with a rule of the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from racecar.plan.entry import Entry
from racecar.plan.layer import Layer
from racecar.plan.step import output
from racecar.reverse.needs import Needs
from racecar.reverse.reverse import one_step
from racecar.reverse.tape import Tape
from racecar.reverse.terms import partial_sums, squared_error
from racecar.rules import conv
from racecar.rules import linear as matrix
from racecar.rules.operation import Operation
from racecar.support.compiling import compiling
from racecar.support.torch_private import in_transform

Transpose = Callable[..., Tensor]
"""A rule ``(operation, y, shape) -> x`` for Aᵀ."""


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
    return _error_with_gradient(h, *parts, out)


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
            if op is layer.op and rule.apply in (*_MATRICES, *_GRADIENTS):
                y = matrix.like(y, matrix.weight_of(operation))
            y = output(operations[op.ordinal](y), op.slot)
    ah = y
    for step in entry.steps:
        y = one_step(step, y, tape, entry, operations[step.op.ordinal])
    return ah, y


def _error_with_gradient(
    h: Tensor, weight: Tensor, bias: Tensor | None, product: Operation, transpose: Transpose, out: Tensor | None
) -> Tensor:
    """‖e‖² of a layer, whose gradient is computed here by its formula.

    Args:
        h: the input of A.
        weight: the weight of A, which the gradient reaches.
        bias: what the operation adds to Ah, or None.
        product: A, with the weight as a constant.
        transpose: the rule for Aᵀ.
        out: the operation's output in the forward pass; None: compute it again.
    """
    if transpose in _MATRICES and _gram_is_smaller(h, weight):
        return _error_by_gram(h, weight, transpose)
    ah = product(matrix.like(h, weight)) if out is None else out
    if out is not None and bias is not None:
        ah = out - bias.to(out.dtype).view(-1, *(1,) * (0 if transpose in _MATRICES else out.dim() - 2))
    rebuilt = transpose(product, ah, h.shape)
    squared = squared_error(h, rebuilt, None)
    if not (torch.is_grad_enabled() and (weight.requires_grad or in_transform(weight))):
        return squared
    e = rebuilt - h
    ae = product(matrix.like(e, weight))
    if transpose not in _MATRICES:
        gradient = _GRADIENTS[transpose]
        return WithGradient.apply(weight, squared, gradient(product, h, ae) + gradient(product, e, ah), None)
    outputs = _stack_rows(ae, ah)
    inputs = _stack_rows(h, e).to(outputs.dtype)
    left, right = (inputs.mT, outputs) if transpose is matrix.matmul else (outputs.mT, inputs)
    if left.numel() + right.numel() < weight.numel():  # keep the factors where they are smaller than their product
        return WithGradient.apply(weight, squared, left, right)
    return WithGradient.apply(weight, squared, left @ right, None)


def _stack_rows(*tensors: Tensor) -> Tensor:
    """One matrix of the rows (…, n) of all tensors."""
    return torch.cat([tensor.reshape(-1, tensor.shape[-1]) for tensor in tensors])


def _gram_is_smaller(h: Tensor, weight: Tensor) -> bool:
    """Whether :func:`_error_by_gram` takes fewer multiplications, and loses no precision."""
    if h.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled(h.device.type):
        return False
    inner = h.shape[-1]
    rows, outer = h.numel() // max(1, inner), weight.numel() // max(1, inner)
    return rows * inner + inner * inner + 2 * inner * outer < 4 * rows * outer


def _error_by_gram(h: Tensor, weight: Tensor, transpose: Transpose) -> Tensor:
    """‖e‖² = tr(MCM) with M = WᵀW − I and C = hᵀh, and its gradient: for many rows h (…, in), where C is smaller."""
    w = weight.detach().mT if transpose is matrix.matmul else weight.detach()
    rows = matrix.like(h, weight).reshape(-1, h.shape[-1])
    m = w.mT @ w - torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    mc = m @ (rows.mT @ rows)
    squared = partial_sums(mc * m, torch.sum)
    if not (torch.is_grad_enabled() and weight.requires_grad):
        return squared
    half = w @ (mc + mc.mT)
    return WithGradient.apply(weight, squared, half.mT if transpose is matrix.matmul else half, None)


class WithGradient(torch.autograd.Function):
    """A number whose gradient with respect to a weight is given: ``half`` of it, or ``half @ right``.

    The number may be split into partial sums, of which only the sum is used.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, number: Tensor, half: Tensor, right: Tensor | None) -> Tensor:
        return number.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        weight, _, half, right = inputs
        ctx.save_for_backward(half, right)
        ctx.dtype = weight.dtype

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        half, right = ctx.saved_tensors
        if torch.is_grad_enabled() and not compiling() and not in_transform(half):
            raise RuntimeError(
                "the gradient of mode 'linear' cannot be derived again (create_graph=True): derive the task's loss by "
                "itself"
            )
        factor = 2 * gradients[0].reshape(-1)[0]  # the same for all partial sums
        if right is None:
            return (factor * half).to(ctx.dtype), None, None, None
        if half.dtype == ctx.dtype:
            return (factor * half) @ right, None, None, None
        return factor * (half @ right).to(ctx.dtype), None, None, None


def _parts(step: LinearStep, h: Tensor) -> tuple[Tensor, Tensor | None, Operation, Transpose] | None:
    """The arguments ``weight``, ``bias``, ``product`` and ``transpose`` of :func:`_error_with_gradient`; None if there
    is no formula for the layer's gradient."""
    layer = step.entry.layer
    transpose = None if layer is None else layer.op.rule.apply
    if (
        layer is None
        or transpose is None
        or transpose not in (*_MATRICES, *_GRADIENTS)
        or layer.linear_ops != (layer.op,)
    ):
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


def _conv_gradient(product: Operation, x: Tensor, g: Tensor) -> Tensor:
    """The gradient of ⟨g, conv(x)⟩ with respect to the weight."""
    weight, stride, padding, dilation, groups = conv.arguments(product)
    padding = 0 if padding == "valid" else padding
    return _convolution_backward(weight, x, g, stride, padding, dilation, groups)


def _conv_transpose_gradient(product: Operation, x: Tensor, g: Tensor) -> Tensor:
    """The gradient of ⟨g, conv_transpose(x)⟩ with respect to the weight."""
    stride, padding = product.get(3, "stride", 1), product.get(4, "padding", 0)
    output_padding, groups = product.get(5, "output_padding", 0), product.get(6, "groups", 1)
    dilation = product.get(7, "dilation", 1)
    weight = matrix.weight_of(product)
    return _convolution_backward(weight, x, g, stride, padding, dilation, groups, output_padding, transposed=True)


def _convolution_backward(
    weight: Tensor,
    x: Tensor,
    g: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    output_padding: Any = 0,
    transposed: bool = False,
) -> Tensor:
    dims = weight.dim() - 2
    sizes = [list(conv.per_dimension(size, dims)) for size in (stride, padding, dilation, output_padding)]
    stride, padding, dilation, output_padding = sizes
    gradients = torch.ops.aten.convolution_backward(
        g,
        x.to(g.dtype),
        weight.to(g.dtype),
        None,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
        [False, True, False],  # of the weight alone
    )
    return gradients[1]


_MATRICES = (matrix.linear, matrix.matmul)
_GRADIENTS: dict[Any, Callable[[Operation, Tensor, Tensor], Tensor]] = {
    conv.conv: _conv_gradient,
    conv.conv_transpose: _conv_transpose_gradient,
}
"""Rule of a convolution → a function of A, x and g that gives the gradient of ⟨g, Ax⟩ with respect to the weight."""


def keeps_nothing(needs: Needs) -> bool:
    """Whether gradients are computed together with the loss, so that recomputing in the backward pass saves nothing."""
    return needs.gradient == "weights" and any(entry.alone for entry in needs.entries)

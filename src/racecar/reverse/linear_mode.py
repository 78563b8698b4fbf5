"""Mode "linear": every weighted operation by itself, how far AᵀA takes its own input h from itself.

A is the operation's linear map, without its bias and with what belongs to it (its own padding, a causal cut); the error
of a layer is e = AᵀAh − h. There is no norm, no activation and no other layer on the way.

Where h is a constant (``gradient="weights"``), the gradient of ‖e‖² with regard to the weight is known as soon as e is:
for a matrix it is 2(Ah eᵀ + Ae hᵀ), for a convolution the same two sums over positions. It is worked out in the forward
pass, so that nothing is kept but that, or a few rows that are smaller still. Operations that this module does not know,
such as those with a rule of the user's, are left to autograd.
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
from racecar.reverse.terms import in_rows, squared_error
from racecar.rules import conv
from racecar.rules import linear as matrix
from racecar.rules.operation import Operation
from racecar.support.compiling import compiling
from racecar.support.torch_private import in_transform

Back = Callable[..., Tensor]


class Way(NamedTuple):
    """A layer's way to its output and back, on one tape."""

    entry: Entry
    tape: Tape
    constant: bool
    """Whether the gradient reaches the weight alone."""


def steps(needs: Needs, tape: Tape) -> Iterator[tuple[Layer, Way]]:
    """Every layer with its way, last first."""
    for entry in needs.entries:
        assert entry.layer is not None
        yield entry.layer, Way(entry, tape, needs.gradient == "weights")


def run(needs: Needs, tape: Tape) -> dict[int, Tensor]:
    """AᵀAh by layer index."""
    return {layer.index: there_and_back(way.entry, tape) for layer, way in steps(needs, tape)}


def error(h: Tensor, way: Way, features: Tensor | None, mask: Tensor | None) -> Tensor:
    """Σ w (AᵀAh − h)² of a layer, as :func:`racecar.reverse.terms.squared_error` gives it."""
    known = _known_product(way, h) if way.constant and features is None else None
    if known is None:
        return squared_error(h, there_and_back(way.entry, way.tape), features, mask)
    layer, out = way.entry.layer, None
    if layer is not None and layer.stays and way.tape.masks is None:
        out = way.tape.tensors[layer.op.outputs[0]]
    return _closed(h, *known, out)


def there_and_back(entry: Entry, tape: Tape) -> Tensor:
    """AᵀAh of a layer."""
    return there_then_back(entry, tape)[1]


def there_then_back(entry: Entry, tape: Tape) -> tuple[Tensor, Tensor]:
    """Ah and AᵀAh of a layer."""
    layer, operations = entry.layer, dict(tape.operations)
    assert layer is not None
    rule, own = layer.op.rule, operations[layer.op.ordinal]
    if rule is not None and rule.linear is not None:  # the rules of others take the bias out
        operations[layer.op.ordinal] = own = rule.linear(own) or own
    if layer.op.module is not None:  # a module taken as one operation is not called again: it may hold a state
        y = tape.tensors[layer.op.outputs[0]]
    else:
        y = tape.tensors[entry.d]
        for op in layer.own:
            if op is layer.op and rule is not None and rule.apply in (*_MATRICES, *_GRADIENTS):
                y = matrix.like(y, matrix.weight_of(own))
            y = output(operations[op.ordinal](y), op.slot)
    there = y
    for step in entry.steps:
        y = one_step(step, y, tape, entry, operations[step.op.ordinal])
    return there, y


def _closed(
    h: Tensor, weight: Tensor, bias: Tensor | None, product: Operation, back: Back, out: Tensor | None
) -> Tensor:
    """‖e‖² of a layer, with its gradient.

    Args:
        weight: where the gradient goes.
        bias: what the forward pass added, or None.
        product: A, with the weight as a constant.
        back: the rule for Aᵀ.
        out: what the forward pass made of h; None: it is not at hand.
    """
    if back in _MATRICES and _gram_is_smaller(h, weight):
        return _by_gram(h, weight, back)
    forth = product(matrix.like(h, weight)) if out is None else out
    if out is not None and bias is not None:
        forth = out - bias.to(out.dtype).view(-1, *(1,) * (0 if back in _MATRICES else out.dim() - 2))
    rebuilt = back(product, forth, h.shape)
    squared = squared_error(h, rebuilt, None)
    if not (torch.is_grad_enabled() and (weight.requires_grad or in_transform(weight))):
        return squared
    e = rebuilt - h
    again = product(matrix.like(e, weight))
    if back not in _MATRICES:
        gradient = _GRADIENTS[back]
        return Known.apply(weight, squared, gradient(product, h, again) + gradient(product, e, forth), None)
    rows = _rows(again, forth)
    read = _rows(h, e).to(rows.dtype)
    left, right = (read.mT, rows) if back is matrix.matmul else (rows.mT, read)
    if left.numel() + right.numel() < weight.numel():  # of a few rows, the product waits for its factor
        return Known.apply(weight, squared, left, right)
    return Known.apply(weight, squared, left @ right, None)


def _rows(*parts: Tensor) -> Tensor:
    """Matrices of all rows below each other."""
    return torch.cat([one.reshape(-1, one.shape[-1]) for one in parts])


def _gram_is_smaller(h: Tensor, weight: Tensor) -> bool:
    """Whether :func:`_by_gram` takes fewer multiplications, and loses no precision."""
    if h.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled(h.device.type):
        return False
    inner = h.shape[-1]
    rows, outer = h.numel() // max(1, inner), weight.numel() // max(1, inner)
    return rows * inner + inner * inner + 2 * inner * outer < 4 * rows * outer


def _by_gram(h: Tensor, weight: Tensor, back: Back) -> Tensor:
    """‖e‖² = tr(MCM) with M = WᵀW − I and C = hᵀh, for many rows h (…, in): products as large as the weight alone."""
    constant = weight.detach().mT if back is matrix.matmul else weight.detach()
    rows = matrix.like(h, weight).reshape(-1, h.shape[-1])
    off = constant.mT @ constant - torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    moved = off @ (rows.mT @ rows)
    squared = in_rows(moved * off, torch.sum)
    if not (torch.is_grad_enabled() and weight.requires_grad):
        return squared
    half = constant @ (moved + moved.mT)
    return Known.apply(weight, squared, half.mT if back is matrix.matmul else half, None)


class Known(torch.autograd.Function):
    """A number, or parts of which only the sum is used, and half of its gradient with regard to a weight: a tensor, or
    the two matrices of which it is the product."""

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
        factor = 2 * gradients[0].reshape(-1)[0]  # the same for all parts of a sum
        if right is None:
            return (factor * half).to(ctx.dtype), None, None, None
        if half.dtype == ctx.dtype:
            return (factor * half) @ right, None, None, None
        return factor * (half @ right).to(ctx.dtype), None, None, None


def _known_product(way: Way, h: Tensor) -> tuple[Tensor, Tensor | None, Operation, Back] | None:
    """A layer's weight, its bias, its product with the weight as a constant, and its rule; None where the weight's
    gradient is not known here."""
    layer = way.entry.layer
    back = None if layer is None or layer.op.rule is None else layer.op.rule.apply
    if layer is None or back is None or back not in (*_MATRICES, *_GRADIENTS) or layer.own != (layer.op,):
        return None
    operation = way.tape.operations[layer.op.ordinal]
    weight = matrix.weight_of(operation)
    if back is matrix.matmul:
        if not operation.data_first or weight.dim() != 2:
            return None
    elif back is not matrix.linear and (
        way.tape.masks is not None or h.dim() != weight.dim() or operation.get(4, "padding") == "same"
    ):
        return None
    args = tuple(one.detach() if isinstance(one, Tensor) else one for one in operation.args)
    kwargs = {name: one.detach() if isinstance(one, Tensor) else one for name, one in operation.kwargs.items()}
    product = Operation(operation.func, args, kwargs, operation.at, operation.name)
    if back is matrix.matmul:
        return weight, None, product, back
    return weight, product.get(2, "bias"), matrix.without_bias(product), back


def _of_conv(product: Operation, x: Tensor, g: Tensor) -> Tensor:
    """The gradient of ⟨g, conv(x)⟩."""
    weight, stride, padding, dilation, groups = conv.arguments(product)
    padding = 0 if padding == "valid" else padding
    return _of_any_conv(weight, x, g, stride, padding, dilation, groups)


def _of_conv_transpose(product: Operation, x: Tensor, g: Tensor) -> Tensor:
    """The gradient of ⟨g, conv_transpose(x)⟩."""
    stride, padding, more = (
        product.get(*one) for one in ((3, "stride", 1), (4, "padding", 0), (5, "output_padding", 0))
    )
    groups, dilation = product.get(6, "groups", 1), product.get(7, "dilation", 1)
    return _of_any_conv(matrix.weight_of(product), x, g, stride, padding, dilation, groups, more)


def _of_any_conv(
    weight: Tensor, x: Tensor, g: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, more: Any = None
) -> Tensor:
    dims = weight.dim() - 2
    sizes = [list(conv.per_dimension(one, dims)) for one in (stride, padding, dilation, more or 0)]
    stride, padding, dilation, output_padding = sizes
    transposed, wanted = more is not None, [False, True, False]
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
        wanted,
    )
    return gradients[1]


_MATRICES = (matrix.linear, matrix.matmul)
_GRADIENTS: dict[Any, Callable[[Operation, Tensor, Tensor], Tensor]] = {
    conv.conv: _of_conv,
    conv.conv_transpose: _of_conv_transpose,
}
"""By rule of a convolution: without its bias, of an input x and g of its output's shape, the gradient of ⟨g, Ax⟩ with
regard to the weight."""


def keeps_nothing(needs: Needs) -> bool:
    """Whether a compiler has nothing to recompute: the gradient is there when the loss is."""
    return needs.gradient == "weights" and any(entry.alone for entry in needs.entries)

"""Mode "linear": every weighted operation by itself, how far AᵀA takes its own input h from itself.

A is the operation's linear map, without its bias and with what belongs to it (its own padding, a causal cut); the error
of a layer is e = AᵀAh − h. There is no norm, no activation and no other layer on the way.

Where h is a constant (``gradient="weights"``), the gradient of ‖e‖² with regard to the weight is known as soon as e is:
for a matrix it is 2(Ah eᵀ + Ae hᵀ), for a convolution the same two sums over positions. It is worked out in the forward
pass, as large as the weight, and nothing of the batch is kept. Operations that this module does not know, such as those
with a rule of the user's, are left to autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from racecar.plan.entry import Entry
from racecar.plan.layer import Layer
from racecar.plan.step import output
from racecar.plan.sums import BIAS_THIRD, without_bias
from racecar.rules import conv
from racecar.rules import linear as matrix
from racecar.rules.registry import Operation
from racecar.run.needs import Needs
from racecar.run.reverse import one_step
from racecar.run.tape import Tape
from racecar.run.terms import squared_error
from racecar.support.compiling import compiling, in_transform


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
    """Σ w (AᵀAh − h)² of a layer, as :func:`racecar.run.terms.squared_error` gives it."""
    known = _known_product(way, h) if way.constant and features is None else None
    if known is None:
        return squared_error(h, there_and_back(way.entry, way.tape), features, mask)
    return _closed(h, *known)


def there_and_back(entry: Entry, tape: Tape) -> Tensor:
    """AᵀAh of a layer."""
    layer, operations = entry.layer, dict(tape.operations)
    assert layer is not None
    rule, own = layer.op.rule, operations[layer.op.ordinal]
    if rule is not None and rule.apply in BIAS_THIRD:  # the rules of others take the bias out
        operations[layer.op.ordinal] = own = without_bias(own)
    if layer.op.module is not None:  # a module taken as one operation is not called again: it may hold a state
        y = tape.tensors[layer.op.outputs[0]]
    else:
        y = tape.tensors[entry.d]
        for op in layer.own:
            if op is layer.op and rule is not None and rule.apply in _GRADIENTS:
                y = matrix.like(y, _weight(own))
            y = output(operations[op.ordinal](y), op.slot)
    for step in entry.steps:
        y = one_step(step, y, tape, entry, operations[step.op.ordinal])
    return y


def _closed(h: Tensor, weight: Tensor, product: Operation, back: Callable[..., Tensor]) -> Tensor:
    """‖e‖² of a layer, with its gradient.

    Args:
        weight: where the gradient goes.
        product: A, with the weight as a constant.
        back: the rule for Aᵀ.
    """
    forth = product(matrix.like(h, weight))
    rebuilt = back(product, forth, h.shape)
    found = squared_error(h, rebuilt, None)
    if not (torch.is_grad_enabled() and (weight.requires_grad or in_transform(weight))):
        return found
    e, gradient = rebuilt - h, _GRADIENTS[back]
    half = gradient(product, h, product(matrix.like(e, weight))) + gradient(product, e, forth)
    return Known.apply(weight, found, half)


class Known(torch.autograd.Function):
    """A number, or parts of which only the sum is used, and half of its gradient with regard to a weight."""

    generate_vmap_rule = True

    @staticmethod
    def forward(weight: Tensor, number: Tensor, half: Tensor) -> Tensor:
        return number.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        weight, _, half = inputs
        ctx.save_for_backward(half)
        ctx.dtype = weight.dtype

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (half,) = ctx.saved_tensors
        if torch.is_grad_enabled() and not compiling() and not in_transform(half):
            raise RuntimeError(
                "the gradient of mode 'linear' cannot be derived again (create_graph=True): derive the task's loss by "
                "itself"
            )
        factor = 2 * gradients[0].reshape(-1)[0]  # the same for all parts of a sum
        return (factor * half).to(ctx.dtype), None, None


def _known_product(way: Way, h: Tensor) -> tuple[Tensor, Operation, Callable[..., Tensor]] | None:
    """A layer's weight, its product with that as a constant, and its rule, if the weight's gradient is known here."""
    layer = way.entry.layer
    back = None if layer is None or layer.op.rule is None else layer.op.rule.apply
    if layer is None or back is None or back not in _GRADIENTS or layer.own != (layer.op,):
        return None
    operation = way.tape.operations[layer.op.ordinal]
    weight = _weight(operation)
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
    return weight, product if back is matrix.matmul else without_bias(product), back


def _weight(operation: Operation) -> Tensor:
    name = next((name for name in ("other", "mat2") if name in operation.kwargs), "weight")
    weight: Tensor = operation.get(1, name)
    return weight


def _of_linear(product: Operation, x: Tensor, g: Tensor) -> Tensor:
    """gᵀx, (out, in)."""
    return g.reshape(-1, g.shape[-1]).mT @ matrix.like(x, g).reshape(-1, x.shape[-1])


def _of_matmul(product: Operation, x: Tensor, g: Tensor) -> Tensor:
    """xᵀg, (in, out)."""
    return _of_linear(product, g, x)


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
    return _of_any_conv(_weight(product), x, g, stride, padding, dilation, groups, more)


def _of_any_conv(
    weight: Tensor, x: Tensor, g: Tensor, stride: Any, padding: Any, dilation: Any, groups: int, more: Any = None
) -> Tensor:
    dims = weight.dim() - 2
    sizes = [list(conv.each(one, dims)) for one in (stride, padding, dilation, more or 0)]
    stride, padding, dilation, output_padding = sizes
    transposed, wanted = more is not None, [False, True, False]
    made = torch.ops.aten.convolution_backward(
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
    return made[1]


_GRADIENTS: dict[Any, Callable[[Operation, Tensor, Tensor], Tensor]] = {
    matrix.linear: _of_linear,
    matrix.matmul: _of_matmul,
    conv.conv: _of_conv,
    conv.conv_transpose: _of_conv_transpose,
}
"""By rule: of an operation without its bias, an input x and g of its output's shape, the gradient of ⟨g, Ax⟩ with
regard to the weight."""


def keeps_nothing(needs: Needs) -> bool:
    """Whether a compiler has nothing to recompute: the gradient is there when the loss is."""
    return needs.gradient == "weights" and any(entry.alone for entry in needs.entries)

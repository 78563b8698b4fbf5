"""The error ‖AᵀAh − h‖² of a weighted operation A for a constant h, together with its gradient.

The gradient with respect to the weight is a formula: with e = AᵀAh − h, for a matrix 2(Ah eᵀ + Ae hᵀ), for a
convolution the same two sums over positions. It is computed together with the error in the forward pass, so that only
this gradient is kept for the backward pass, or two factors of it that are smaller still.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from racecar.reverse.terms import partial_sums, squared_error
from racecar.rules import conv
from racecar.rules import linear as matrix
from racecar.rules.operation import Operation
from racecar.support.compiling import compiling
from racecar.support.torch_private import in_transform

Transpose = Callable[..., Tensor]
"""A rule ``(operation, y, shape) -> x`` for Aᵀ."""


def error_with_gradient(
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

WITH_FORMULA = (*_MATRICES, *_GRADIENTS)
"""The rules whose operations this module has a formula for."""

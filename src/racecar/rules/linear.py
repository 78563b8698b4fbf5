"""Linear layers: y = x Wᵀ + b is undone as x' = (y − b) W."""

from __future__ import annotations

import torch
from torch import Size, Tensor
from torch.nn import functional as F

from racecar.rules.fallback import adjoint
from racecar.rules.mask_rules import MaskedOperation, along_last, any_along, fit, intersection
from racecar.rules.operation import FIRST, Operation, Path
from racecar.rules.registry import register
from racecar.rules.torch_functions import forms


def like(y: Tensor, weight: Tensor) -> Tensor:
    """``y`` in the dtype of the weight; under autocast ``y`` itself, because autocast converts what is multiplied."""
    if y.dtype == weight.dtype or torch.is_autocast_enabled(y.device.type):
        return y
    return y.to(weight.dtype)


def minus(y: Tensor, bias: Tensor) -> Tensor:
    """y − b in the dtype of y: under autocast, a bias in float32 would otherwise convert all of y to float32.

    Written as y + (−b), so that the gradient of b is negated and not the much larger gradient of y.
    """
    return y + (-bias).to(y.dtype)


def weight_of(op: Operation) -> Tensor:
    """The weight of a matrix product or convolution: its second argument."""
    name = next((name for name in ("other", "mat2") if name in op.kwargs), "weight")
    weight: Tensor = op.get(1, name)
    return weight


def without_bias(op: Operation) -> Operation:
    """The operation without its bias, which is the third argument."""
    args = (*op.args[:2], None, *op.args[3:])[: len(op.args)]
    kwargs = {name: None if name == "bias" else value for name, value in op.kwargs.items()}
    return Operation(op.func, args, kwargs, op.at, op.name, op.module, op.trainable, context=op.context)


def _linear_product(op: Operation) -> Operation | None:
    """``Rule.linear`` of a matrix product: the product itself if it is x W with a matrix W, else None."""
    weight = weight_of(op) if op.data_first else None
    return op if isinstance(weight, Tensor) and weight.dim() == 2 else None


@register(F.linear, kind="linear", mask=along_last, linear=without_bias)
def linear(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """F.linear: y (…, out), weight (out, in) → (…, in)."""
    weight, bias = op.get(1, "weight"), op.get(2, "bias")
    y = like(y, weight)
    return (y if bias is None else minus(y, bias)) @ weight


@register(*forms("addmm"), kind="linear", mask=along_last)
def addmm(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """β·bias + α·x W, as in Hugging Face's Conv1D: y (rows, out), weight (in, out) → (rows, in)."""
    if op.at not in (((1,),), (("mat1",),)):
        return adjoint(op, y, shape)
    bias, weight = op.get(0, "input"), op.get(2, "mat2")
    beta, alpha = op.kwargs.get("beta", 1), op.kwargs.get("alpha", 1)
    x = minus(like(y, weight), bias if beta == 1 else beta * bias) @ weight.mT
    return x if alpha == 1 else alpha * x


def product_mask(call: MaskedOperation, left: tuple[Path, ...] = FIRST) -> Tensor | None:
    """Mask rule of matrix products: rows come from the left factor, columns from the right one.

    Args:
        left: the possible places of the left factor among the arguments.
    """
    factors: list[Tensor | None] = []
    for path, mask in zip(call.paths, call.masks, strict=True):
        if mask is not None and mask.dim() < 2:
            return None
        factors.append(None if mask is None else any_along(mask, [-1] if path in left else [-2]))
    return fit(intersection(factors), call.shape)


@register(*forms("matmul", "mm", "__matmul__"), kind="linear", mask=product_mask, linear=_linear_product)
def matmul(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """x W or W x with a weight matrix W: y Wᵀ or Wᵀ y; other ranks go through the adjoint."""
    first = op.data_first
    weight = (op.get(1, "other") if "other" in op.kwargs else op.get(1, "mat2")) if first else op.get(0, "input")
    if weight.dim() != 2 or len(shape) < 2:
        return adjoint(op, y, shape)
    y = like(y, weight)
    return y @ weight.mT if first else weight.mT @ y

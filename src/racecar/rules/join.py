"""Addition and multiplication: with a constant or a parameter affine, with a second tensor of data a join.

A constant is undone by its inverse. A parameter is a weight, and weights are undone by their transpose: a diagonal
matrix is its own transpose, so the reverse pass multiplies again. (Division by a learned scale near 0 would explode.)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Size, Tensor

from racecar.rules.activation import FIXED_OPERAND
from racecar.rules.fallback import adjoint
from racecar.rules.operation import FIRST, Operation, Path
from racecar.rules.registry import register
from racecar.rules.roles import Role
from racecar.rules.shape import unbroadcast
from racecar.rules.torch_functions import forms

_affine = partial(register, role=Role.AFFINE, elementwise=True)


def _operands(op: Operation) -> tuple[bool, Any, float]:
    """Whether the data is the first operand; the other operand; alpha."""
    first = op.data_first
    other = op.get(1, "other") if first else op.get(0, "input")
    return first, other, op.kwargs.get("alpha", 1)


def _divide(y: Tensor, by: Any) -> Tensor:
    """y / by, and 0 where ``by`` is 0: multiplication by 0 cannot be undone."""
    if isinstance(by, Tensor):
        zero = by == 0
        return torch.where(zero, 0, y / torch.where(zero, 1, by))
    return y / by if by != 0 else torch.zeros_like(y)


def _add_factor(op: Operation, path: Path) -> Any:
    """``Rule.factor`` of an addition."""
    return 1 if path in FIRST else op.kwargs.get("alpha", 1)


def _sub_factor(op: Operation, path: Path) -> Any:
    """``Rule.factor`` of a subtraction."""
    return 1 if path in FIRST else -op.kwargs.get("alpha", 1)


def _mul_factor(op: Operation, path: Path) -> Any:
    """``Rule.factor`` of a multiplication."""
    return _operands(op)[1]  # None where both are data


def _div_factor(op: Operation, path: Path) -> Any:
    """``Rule.factor`` of a division."""
    other = _operands(op)[1]
    linear = path in FIRST and (isinstance(other, Tensor) or other)
    return 1 / other if linear else None


@_affine(*forms("add __add__ __radd__ __iadd__"), kind="add", factor=_add_factor)
def add(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Subtracts the constant: undoes x + α c or c + α x."""
    first, other, alpha = _operands(op)
    x = y - (other if alpha == 1 else alpha * other) if first else _divide(y - other, alpha)
    return unbroadcast(x, shape)


@_affine(*forms("sub subtract __sub__ __isub__"), kind="sub", factor=_sub_factor)
def sub(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Adds the constant: undoes x − α c or c − α x."""
    first, other, alpha = _operands(op)
    x = y + (other if alpha == 1 else alpha * other) if first else _divide(other - y, alpha)
    return unbroadcast(x, shape)


@_affine(*forms("rsub", "__rsub__"), kind="rsub")
def rsub(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Undoes c − α x, where x is the first argument."""
    _, other, alpha = _operands(op)
    return unbroadcast(_divide(other - y, alpha), shape)


@_affine(*forms("mul multiply __mul__ __rmul__ __imul__"), kind="mul", factor=_mul_factor)
def mul(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Divides by a constant, multiplies by a parameter: undoes x · c."""
    _, other, _ = _operands(op)
    return unbroadcast(y * other if op.trainable else _divide(y, other), shape)


@_affine(
    *forms("div divide true_divide __truediv__ __itruediv__ __div__"),
    kind="div",
    factor=_div_factor,
    variant=lambda op: None if op.data_first else FIXED_OPERAND,
)
def div(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Multiplies by a constant, divides by a parameter: undoes x / c. (c / x is an activation.)"""
    _, other, _ = _operands(op)
    return unbroadcast(_divide(y, other) if op.trainable else y * other, shape)


@_affine(*forms("addcmul"), kind="addcmul")
def addcmul(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Subtracts c, divides by a constant v·a, multiplies by a parameter: undoes c + v·a·x."""
    place = op.at[0][0]
    if place == 0:
        return adjoint(op, y, shape)
    other = op.args[3 - int(place)] * op.kwargs.get("value", 1)
    x = y - op.args[0]
    return unbroadcast(x * other if op.trainable else _divide(x, other), shape)


@register(*forms("neg", "negative", "__neg__"), role=Role.AFFINE, kind="neg", factor=lambda op, path: -1)
def neg(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """The negative."""
    return -y

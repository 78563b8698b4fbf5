"""Adding and multiplying constants or parameters is affine; with a second tensor of data it is a join.

A constant is undone by its inverse. A parameter is a weight, and weights go back transposed: multiplication by a
diagonal matrix is its own transpose (dividing by a learned scale near zero would blow up the reverse pass).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Size, Tensor

from racecar.rules.fallback import adjoint
from racecar.rules.operation import FIRST, Operation, Path
from racecar.rules.registry import register
from racecar.rules.roles import Role
from racecar.rules.shape import unbroadcast
from racecar.rules.torch_functions import forms

_affine = partial(register, role=Role.AFFINE, elementwise=True)


def _parts(op: Operation) -> tuple[bool, Any, float]:
    """Whether the data stands first, the other operand, and alpha."""
    first = op.data_first
    other = op.get(1, "other") if first else op.get(0, "input")
    return first, other, op.kwargs.get("alpha", 1)


def _divide(y: Tensor, by: Any) -> Tensor:
    """y / by, and 0 where a constant 0 has wiped the data out."""
    if isinstance(by, Tensor):
        gone = by == 0
        return torch.where(gone, 0, y / torch.where(gone, 1, by))
    return y / by if by != 0 else torch.zeros_like(y)


def _of_add(op: Operation, path: Path) -> Any:
    return 1 if path in FIRST else op.kwargs.get("alpha", 1)


def _of_sub(op: Operation, path: Path) -> Any:
    return 1 if path in FIRST else -op.kwargs.get("alpha", 1)


def _of_mul(op: Operation, path: Path) -> Any:
    return _parts(op)[1]  # None where both are data


def _of_div(op: Operation, path: Path) -> Any:
    other = _parts(op)[1]
    linear = path in FIRST and (isinstance(other, Tensor) or other)
    return 1 / other if linear else None


@_affine(*forms("add __add__ __radd__ __iadd__"), kind="add", factor=_of_add)
def add(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """x + α c, or c + α x."""
    first, other, alpha = _parts(op)
    x = y - (other if alpha == 1 else alpha * other) if first else _divide(y - other, alpha)
    return unbroadcast(x, shape)


@_affine(*forms("sub subtract __sub__ __isub__"), kind="sub", factor=_of_sub)
def sub(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """x − α c, or c − α x."""
    first, other, alpha = _parts(op)
    x = y + (other if alpha == 1 else alpha * other) if first else _divide(other - y, alpha)
    return unbroadcast(x, shape)


@_affine(*forms("rsub", "__rsub__"), kind="rsub")
def rsub(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """c − α x, with the data as the first argument."""
    _, other, alpha = _parts(op)
    return unbroadcast(_divide(other - y, alpha), shape)


@_affine(*forms("mul multiply __mul__ __rmul__ __imul__"), kind="mul", factor=_of_mul)
def mul(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """x · c."""
    _, other, _ = _parts(op)
    return unbroadcast(y * other if op.trainable else _divide(y, other), shape)


@_affine(*forms("div divide true_divide __truediv__ __itruediv__ __div__"), kind="div", factor=_of_div)
def div(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """x / c. (c / x is no affine operation; a plan takes it for an activation.)"""
    _, other, _ = _parts(op)
    return unbroadcast(_divide(y, other) if op.trainable else y * other, shape)


@_affine(*forms("addcmul"), kind="addcmul")
def addcmul(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """c + v·a·x."""
    place = op.at[0][0]
    if place == 0:
        return adjoint(op, y, shape)
    other = op.args[3 - int(place)] * op.kwargs.get("value", 1)
    x = y - op.args[0]
    return unbroadcast(x * other if op.trainable else _divide(x, other), shape)


@register(*forms("neg", "negative", "__neg__"), role=Role.AFFINE, kind="neg", factor=lambda op, path: -1)
def neg(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """−x."""
    return -y

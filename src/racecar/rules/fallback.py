"""The general rule for affine operations without a rule of their own: the adjoint, by a vector-Jacobian product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Size, Tensor

from racecar.rules.operation import Operation
from racecar.rules.registry import Rule
from racecar.rules.roles import Role


def adjoint(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Aᵀ(y − b) for any operation x ↦ A x + b, with b = op(0)."""
    zeros = torch.zeros(shape, dtype=y.dtype, device=y.device)
    bias, pull, *_ = torch.func.vjp(op, zeros)
    return pull((y - bias).to(bias.dtype))[0]


def is_affine(op: Operation, x: Tensor) -> bool:
    """Whether ``op`` is affine: tests f(u + v) + f(0) = f(u) + f(v) at random u and v of the shape of ``x``."""
    # A separate generator, so that the test never advances the user's random state.
    generator = torch.Generator().manual_seed(0)

    # Half precision is tested in float32, where rounding is not mistaken for nonlinearity.
    dtype = x.dtype if x.dtype == torch.float64 else torch.float32

    def random(arg: Any) -> Any:
        if isinstance(arg, Tensor) and arg.is_floating_point():
            return torch.randn(arg.shape, generator=generator, dtype=torch.float32).to(arg.device, dtype)
        return type(arg)(map(random, arg)) if type(arg) in (tuple, list) else arg

    u, v = random(x), random(x)
    # Random constants, too: a weight may be zero at the start, and with it every operation looks affine.
    kwargs = {name: random(arg) for name, arg in op.kwargs.items()}
    op = Operation(op.func, random(op.args), kwargs, op.at, inplace_at=op.inplace_at)
    try:
        both, zero, left, right = op(u + v), op(torch.zeros_like(u)), op(u), op(v)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    if not isinstance(both, Tensor) or not both.is_floating_point():
        return False
    gap = (both + zero - left - right).abs().max()
    size = left.abs().max() + right.abs().max() + both.abs().max()
    return bool(size > 0) and bool(gap <= 1e3 * torch.finfo(both.dtype).eps * size)


def by_adjoint(role: Role, known: Rule) -> Rule:
    """The general rule, for an operation of this role. ``known``: a rule with what else is known of the operation."""
    return replace(known, role=role, kind="affine (vjp)", apply=adjoint, by_vjp=True)

"""Affine operations without a rule of their own: their adjoint by a vector-Jacobian product."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Size, Tensor

from racecar.rules.batch_dim import stays
from racecar.rules.marks import unknown
from racecar.rules.operation import Operation
from racecar.rules.registry import Rule
from racecar.rules.roles import Role


def adjoint(op: Operation, y: Tensor, shape: Size) -> Tensor:
    """Aᵀ(y − b) for any operation x ↦ A x + b; b is what it gives on zeros."""
    zeros = torch.zeros(shape, dtype=y.dtype, device=y.device)
    bias, pull, *_ = torch.func.vjp(op, zeros)
    return pull((y - bias).to(bias.dtype))[0]


def is_affine(op: Operation, x: Tensor) -> bool:
    """Whether ``op`` is affine, tried at random points of ``x``'s shape: f(u + v) + f(0) = f(u) + f(v)."""
    # A generator of its own, so that probing never moves the user's RNG.
    generator = torch.Generator().manual_seed(0)

    # Rounding must not pass for a bend: half precision is probed in float32.
    dtype = x.dtype if x.dtype == torch.float64 else torch.float32

    def random(one: Any) -> Any:
        if isinstance(one, Tensor) and one.is_floating_point():
            return torch.randn(one.shape, generator=generator, dtype=torch.float32).to(one.device, dtype)
        return type(one)(map(random, one)) if type(one) in (tuple, list) else one

    u, v = random(x), random(x)
    # A weight may start at zero, where every operation looks affine.
    kwargs = {name: random(one) for name, one in op.kwargs.items()}
    op = Operation(op.func, random(op.args), kwargs, op.at, inplace_at=op.inplace_at)
    try:
        together, zero, left, right = op(u + v), op(torch.zeros_like(u)), op(u), op(v)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False
    if not isinstance(together, Tensor) or not together.is_floating_point():
        return False
    gap = (together + zero - left - right).abs().max()
    size = left.abs().max() + right.abs().max() + together.abs().max()
    return bool(size > 0) and bool(gap <= 1e3 * torch.finfo(together.dtype).eps * size)


def by_adjoint(role: Role, known: Rule | None) -> Rule:
    """The rule of an affine operation without one of its own. ``known``: what is known of it otherwise."""
    if known is None:
        return Rule(role, "affine (vjp)", adjoint, by_vjp=True, batch=stays, mask=unknown)
    return replace(known, role=role, kind="affine (vjp)", apply=adjoint, by_vjp=True)

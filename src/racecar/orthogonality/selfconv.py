"""OCNN: orthogonality of the convolution itself, not of its kernel as a matrix (Wang et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod, tau

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.orthogonality.gram import check_side, excess, residual, squared
from racecar.orthogonality.weights import Kernel, Patterns, Weights, exact, find, stacks, total


def ocnn(
    model_or_weights: Weights,
    *,
    layers: Patterns | None = None,
    side: str = "smaller",
    stride: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] | None = None,
    groups: int | None = None,
) -> Tensor:
    """The orthogonal convolution loss: Σ ‖Conv(K, K, padding=P, stride=S) − I_r0‖² over the layers, K the kernel.

    Conv(K, K) holds the inner products of every filter with every other at every shift at which they overlap (the
    padding P is large enough for all): the rows, away from the border, of 𝒦𝒦ᵀ, where 𝒦 is the layer's operator on
    images. So the layer's own padding does not matter. A linear layer is a kernel of size 1.

    Args:
        model_or_weights, layers: as for `so`. A model's layers have their own stride, dilation and groups.
        side: "rows" is the paper's formula, 𝒦𝒦ᵀ. "columns" is 𝒦ᵀ𝒦 over the inputs that the kernel reaches, for each
            output position: ‖Conv(Kᵀ, Kᵀ) − I_c0‖² for stride 1. "smaller" is the one of both that can become 0 (as in
            Achour et al. 2022). They differ by a constant and have the same gradient. For a transposed convolution,
            rows and columns are those of its adjoint.
        stride, dilation, groups: how bare weights (out, in/groups, k…) are applied; None: 1.
    """
    check_side(side)
    kernels = find(model_or_weights, layers)
    if not isinstance(model_or_weights, nn.Module):
        kernels = [_kernel(kernel.weight, stride, dilation, groups) for kernel in kernels]
    elif (stride, dilation, groups) != (None, None, None):
        raise ValueError("stride, dilation and groups are for bare weights: a model's layers have their own")
    return total([_term(blocks(stack, kernel), side) for kernel, stack in stacks(kernels)])


def _kernel(
    weight: Tensor, stride: int | Sequence[int] | None, dilation: int | Sequence[int] | None, groups: int | None
) -> Kernel:
    """A bare weight with the stride, dilation and groups that the user gave for it."""
    dims = weight.dim() - 2
    groups = 1 if groups is None else groups
    if groups < 1 or len(weight) % groups:
        raise ValueError(f"a weight with {len(weight)} filters cannot be in {groups} groups")
    return Kernel(weight, _each(stride, dims, "stride"), _each(dilation, dims, "dilation"), groups)


def _each(value: int | Sequence[int] | None, dims: int, name: str) -> tuple[int, ...]:
    """One number for each spatial dimension, from one number for all, several, or None for 1."""
    value = 1 if value is None else value
    values = (value,) * dims if isinstance(value, int) else tuple(value)
    if len(values) != dims or min(values, default=1) < 1:
        raise ValueError(f"{name} must be {dims} whole numbers of at least 1, or one for all, not {value!r}")
    return values


def blocks(stack: Tensor, layer: Kernel) -> Tensor:
    """Rewrite convolutions as equivalent ones of stride 1, one block for each group of each layer.

    Input positions that differ modulo the stride become separate columns. Dilated filters overlap only at shifts that
    are multiples of both stride and dilation, so a dilation only makes the stride smaller.

    Args:
        stack: weights of layers that are alike, (layers, out, in/groups, k…).
        layer: one of these layers, for stride, dilation and groups.

    Returns:
        (blocks, rows, columns, taps…).
    """
    kernel = stack.reshape(-1, stack.shape[1] // layer.groups, *stack.shape[2:])
    for dim, (stride, dilation) in enumerate(zip(layer.stride, layer.dilation, strict=True), start=3):
        size = kernel.shape[dim]
        phases = min(size, stride // gcd(stride, dilation))
        missing = -size % phases
        if missing:
            kernel = F.pad(kernel, (0, 0) * (kernel.dim() - 1 - dim) + (0, missing))
        kernel = kernel.unflatten(dim, (-1, phases)).movedim(dim + 1, 3).flatten(2, 3)
    return kernel


def _term(kernel: Tensor, side: str) -> Tensor:
    """Σ ‖Conv(K, K) − I‖², a scalar, for kernels (blocks, rows, columns, taps…) of stride 1.

    By Parseval it is the mean of ‖K̂K̂ᴴ − I‖² over the frequencies of the self-convolution, with a fraction of the
    products, K̂ = A + iB. Frequencies ω and −ω have conjugate K̂: half of them is enough.
    """
    _, rows, columns, *taps = kernel.shape
    if prod(taps) == 1:
        return squared(kernel.flatten(2), side)
    if rows > columns:
        kernel = kernel.transpose(1, 2)
    angles = _angles(taps, kernel)
    with exact(kernel):
        spectrum = kernel.flatten(3) @ torch.cat([angles.cos(), angles.sin()]).T
        spectrum = spectrum.unflatten(3, (2, -1)).permute(0, 4, 1, 3, 2).flatten(0, 1)  # (blocks · ω, rows, 2, columns)
        a, b = spectrum.unbind(2)
        imaginary = torch.bmm(b, a.mT)
    real = residual(spectrum.flatten(2))  # AAᵀ + BBᵀ − I
    errors = real.square().sum((1, 2)) + (imaginary - imaginary.mT).square().sum((1, 2))
    errors = errors.unflatten(0, (len(kernel), -1)).sum(0)
    mean = (errors[0] + 2 * errors[1:].sum()) / (2 * len(errors) - 1)
    return mean + len(kernel) * excess(side, rows, columns)


def _angles(taps: Sequence[int], like: Tensor) -> Tensor:
    """The angles 2π · frequency · tap of a discrete Fourier transform, (frequencies, taps), for frequency 0 and one of
    each other pair ±ω."""
    angles = like.new_zeros(1, 1)
    for n in taps:
        size = 2 * n - 1  # a self-convolution of n taps has 2n − 1
        tap = torch.arange(n, device=like.device)
        frequency = torch.arange(1 - n, n, device=like.device)
        axis_angles = (frequency[:, None] * tap % size).to(like.dtype) * (tau / size)
        angles = (angles[:, None, :, None] + axis_angles[:, None, :]).flatten(2).flatten(0, 1)
    return angles[len(angles) // 2 :]

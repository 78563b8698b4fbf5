"""The terms of the racecar loss: the squared error between d_m and d'_m of each layer, divided as ``scale`` says.

Under torch.compile a sum over an activation is not taken to a scalar at once: see :func:`partial_sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.support.compiling import compiling
from racecar.support.memory_order import channels_last, memory_order
from racecar.support.precision import wide

SCALES = ("relative", "ratio", "anchored", "mean", "sum")
RELATIVE = ("relative", "ratio")
"""Σ (d − d')² / Σ d². In "relative" no gradient flows through the denominator, so that a layer can lower the term by
making d and d' smaller together, until nothing is left of them; in "ratio" it cannot."""
AVERAGES = ("mean", "anchored")
"""Σ (d − d')², divided by the number of elements of d."""
GRADIENTS = ("both", "reverse", "weights")
"""What the gradient of a term reaches: d and d' (the paper); d' alone, d is a fixed target; or the weights alone, all
activations of the forward pass are constants."""
REDUCTIONS = ("mean", "sum")
"""Over the constrained layers: a λ that means the same for 3 and for 100 of them, or the paper's sum."""
ROWS = 1024
"""Number of parts into which a compiled sum over an activation is divided: enough for every processor of a GPU."""


def squared_error(d: Tensor, reverse: Tensor, weight: Tensor | None, mask: Tensor | None = None) -> Tensor:
    """Σ w (d − d')², a float32 (or float64) scalar; compiled, its :func:`partial_sums`.

    Args:
        d: forward activation d_m, (n, …).
        reverse: d'_m of the same shape.
        weight: None, or a tensor that broadcasts against d_m without its batch dimension.
        mask: None, or True where d_m counts: as many dimensions, each as long or 1.
    """
    dtype = wide(d)
    if d.dtype != reverse.dtype:  # a float64 head behind layers in float32
        dtype = torch.promote_types(dtype, wide(reverse))
    if weight is not None or compiling():
        # The compiler squares the difference before it is rounded, and keeps the difference and both gradients in the
        # precision of the activations.
        d, reverse, weight = along_memory(masked(d, mask), masked(reverse, mask), weight)
        errors = (d - reverse).to(dtype).square()
        errors = errors if weight is None else errors * weight.to(dtype)
        return partial_sums(errors, torch.sum)
    if mask is None and d.dtype == reverse.dtype == dtype and d.is_contiguous() and reverse.is_contiguous():
        return F.mse_loss(reverse, d, reduction="sum")
    return SquaredError.apply(d, reverse, dtype, mask)


class SquaredError(torch.autograd.Function):
    """Σ (d − d')² of activations in low precision, channels last or with a mask.

    F.mse_loss would keep copies of both, in float32 or masked, and its gradient would not be channels last, which slows
    convolutions down."""

    generate_vmap_rule = True

    @staticmethod
    def forward(d: Tensor, reverse: Tensor, dtype: torch.dtype, mask: Tensor | None = None) -> Tensor:
        # In the precision of the activations, as is its gradient: in float32 it would take more memory than all else.
        return torch.linalg.vector_norm(masked(d - reverse, mask), dtype=dtype).square()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2], inputs[3])  # the model's own backward pass keeps d and d', too

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d, reverse, mask = ctx.saved_tensors
        factor = 2 * gradients[0]
        gradient = (d - reverse) * (factor if mask is None else (factor * mask).to(d.dtype))
        return gradient.to(d.dtype), -gradient.to(reverse.dtype), None, None


def along_memory(d: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """``d`` and others of as many dimensions, permuted to the order of d in memory: sums along memory are faster."""
    if not channels_last(d):
        return d, *others
    order = memory_order(d)
    return d.permute(order), *(None if other is None else other.permute(order) for other in others)


def size(d: Tensor, weight: Tensor | None, scale: str = "relative", mask: Tensor | None = None) -> Tensor:
    """√Σ d², a scalar; while torch.compile traces, a vector instead that :func:`totals` reduces to it.

    Args:
        d: d_m, (N, …).
        weight: λ if it is a tensor: elements where it is 0 do not count; None: all count.
        scale: of the loss. With "ratio" a gradient flows through the result, otherwise none does.
        mask: True where d is data, False where it is padding, which does not count; None: all is data.
    """
    d, weight = along_memory(masked(d if scale == "ratio" else d.detach(), mask), weight)
    if weight is not None:
        d = d * (weight != 0)
    return partial_sums(d, partial(torch.linalg.vector_norm, dtype=wide(d)))


def partial_sums(x: Tensor, reduce: Callable[..., Tensor]) -> Tensor:
    """``reduce(x)``, a scalar; compiled, a vector with one number for each of ROWS parts of x.

    :func:`totals` reduces the vectors of all layers to scalars. The compiler would need two kernels for the scalar of
    each layer, and more to put the scalars together. So many rows it reduces in one kernel, which also writes them
    beside those of the other layers.
    """
    if not compiling():
        return reduce(x)
    if x.numel() % ROWS:
        return torch.constant_pad_nd(reduce(x).reshape(1), (0, ROWS - 1))
    return reduce(x.reshape(ROWS, -1), dim=1)


def totals(parts: Sequence[Tensor], reduce: Callable[..., Tensor]) -> Tensor:
    """The scalars of all layers as one vector, from the :func:`partial_sums` of each."""
    stacked = torch.stack(list(parts))
    return reduce(stacked, dim=1) if stacked.dim() > 1 else stacked


def input_energy(inputs: Sequence[Tensor], masks: Sequence[Tensor | None] | None = None) -> Tensor:
    """The mean square of the model's inputs, where their masks are True: a float32 (or float64) scalar.

    Scale "anchored" divides by it, because no weight of the model can change it."""
    masked_inputs = zip(inputs, masks or [None] * len(inputs), strict=True)
    pairs = [(x.detach(), mask) for x, mask in masked_inputs if x.is_floating_point()]
    if any(x.layout is not torch.strided for x, _ in pairs):
        raise ValueError("scale 'anchored' cannot measure a sparse input: use scale='relative' or scale='mean'")
    numbers = [x if mask is None else torch.where(mask, x, 0) for x, mask in pairs]
    if not numbers:
        raise ValueError(
            "scale 'anchored' divides by the energy of the model's input, and this input holds no floating-point "
            "numbers; use scale='relative' or scale='mean'"
        )
    dtype = torch.float64 if any(x.dtype == torch.float64 for x in numbers) else torch.float32
    squares = [torch.linalg.vector_norm(x, dtype=dtype).square() for x in numbers]
    return torch.stack(squares).sum() / _at_least_1(sum(counted(x, mask) for x, mask in pairs))


def masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """x with 0 where the mask is False. (A product, as a tape holds no NaN there: torch.where takes five times as
    long on a CPU.)"""
    return x if mask is None else x * mask


def counted(x: Tensor, mask: Tensor | None) -> int | Tensor:
    """The number of elements of x where the mask is True."""
    return x.numel() if mask is None else mask.sum() * (x.numel() // max(1, mask.numel()))


def terms(
    errors: Sequence[Tensor],
    counts: Sequence[int | Tensor],
    scale: str,
    *,
    sizes: Tensor | None = None,
    floors: Tensor | None = None,
    share: float = 1.0,
    energy: Tensor | None = None,
) -> Tensor:
    """The terms of all layers before λ, as one vector (layers,): a few small kernels instead of many.

    Args:
        errors: Σ w (d − d')² of each layer, from :func:`squared_error`.
        counts: number of elements of each d_m where its mask is True, for scales "mean" and "anchored".
        sizes: √Σ d² of each layer, (layers,), for scales "relative" and "ratio".
        floors: from :func:`~racecar.reverse.noise_floors.noise_floors`, for the same scales: up to this Σ d² a term
            is 0; None: 0 for all layers.
        share: N / n, the factor of a sum over n of N samples, for scale "sum".
        energy: from :func:`input_energy`, for scale "anchored".
    """
    if scale in AVERAGES:
        vector = totals([error / _at_least_1(count) for error, count in zip(errors, counts, strict=True)], torch.sum)
        return vector if energy is None else _divide(vector, energy.to(vector.dtype), energy == 0)
    vector = totals(errors, torch.sum)
    if scale == "sum":
        return vector if share == 1 else vector * share
    assert sizes is not None
    total = sizes.square()
    return _divide(vector, total, total.detach() <= (0 if floors is None else floors))


def _at_least_1(count: int | Tensor) -> int | Tensor:
    """The count, but 1 instead of 0, so that it can be divided by: a mask may leave nothing."""
    return count.clamp(min=1) if isinstance(count, Tensor) else max(1, count)


def _divide(vector: Tensor, total: Tensor, empty: Tensor) -> Tensor:
    """vector / total, and 0 where ``empty``."""
    # Divided by 1 and multiplied by 0 there, so that a NaN in d' is not hidden.
    return vector / torch.where(empty, 1, total) * ~empty

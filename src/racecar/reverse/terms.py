"""The terms of the racecar loss: how far d'_m is from d_m, and by what that is divided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.rules.norm import Moments
from racecar.support.compiling import compiling
from racecar.support.memory_order import channels_last, memory_order
from racecar.support.precision import wide

SCALES = ("relative", "ratio", "anchored", "mean", "sum")
RELATIVE = ("relative", "ratio")
"""Σ (d − d')² / Σ d². In "relative" no gradient flows through the denominator, so that a layer can lower the term by
making d and d' smaller together, until nothing is left of them; in "ratio" it cannot."""
AVERAGES = ("mean", "anchored")
"""Over the number of elements."""
GRADIENTS = ("both", "reverse", "weights")
"""What the gradient of a term reaches: d and d' (the paper); d' alone, d is a fixed target; or the weights alone, all
activations of the forward pass are constants."""
REDUCTIONS = ("mean", "sum")
"""Over the constrained layers: a λ that means the same for 3 and for 100 of them, or the paper's sum."""
ROWS = 1024
"""Into how many parts a compiled sum over an activation is divided: enough for every processor of a GPU."""


def squared_error(d: Tensor, reverse: Tensor, weight: Tensor | None, mask: Tensor | None = None) -> Tensor:
    """Σ w (d − d')², a float32 (or float64) scalar; compiled, a vector whose sum it is (:func:`totals`).

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
        # Compiled, the difference is not rounded before it is squared; but it, and the gradient of both sides, is kept
        # in the precision of the activations.
        d, reverse, weight = along_memory(masked(d, mask), masked(reverse, mask), weight)
        errors = (d - reverse).to(dtype).square()
        errors = errors if weight is None else errors * weight.to(dtype)
        return in_rows(errors, torch.sum)
    if mask is None and d.dtype == reverse.dtype == dtype and d.is_contiguous() and reverse.is_contiguous():
        return F.mse_loss(reverse, d, reduction="sum")
    return SquaredError.apply(d, reverse, dtype, mask)


class SquaredError(torch.autograd.Function):
    """Σ (d − d')² of activations in low precision, channels last or with a mask: mse_loss would keep copies of both,
    in float32 or masked, and its gradient would forget the strides, which costs convolutions more than all else."""

    generate_vmap_rule = True

    @staticmethod
    def forward(d: Tensor, reverse: Tensor, dtype: torch.dtype, mask: Tensor | None = None) -> Tensor:
        # The difference is rounded as its gradient will be: in float32 its memory would cost more than all the rest.
        return torch.linalg.vector_norm(masked(d - reverse, mask), dtype=dtype).square()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2], inputs[3])  # others keep them, too

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d, reverse, mask = ctx.saved_tensors
        factor = 2 * gradients[0]
        gradient = (d - reverse) * (factor if mask is None else (factor * mask).to(d.dtype))
        return gradient.to(d.dtype), -gradient.to(reverse.dtype), None, None


def along_memory(d: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """``d`` and others of as many dimensions, in the order in which d lies in memory: for sums over all of it."""
    if not channels_last(d):
        return d, *others
    order = memory_order(d)
    return d.permute(order), *(None if one is None else one.permute(order) for one in others)


def size(d: Tensor, weight: Tensor | None, scale: str = "relative", mask: Tensor | None = None) -> Tensor:
    """√Σ d² over the features with w ≠ 0, where they count; compiled, a vector whose norm it is (:func:`totals`). A
    gradient flows through it for scale "ratio" alone, if d has one."""
    d, weight = along_memory(masked(d if scale == "ratio" else d.detach(), mask), weight)
    if weight is not None:
        d = d * (weight != 0)
    return in_rows(d, partial(torch.linalg.vector_norm, dtype=wide(d)))


def in_rows(x: Tensor, reduce: Callable[..., Tensor]) -> Tensor:
    """``reduce`` x to a scalar; compiled, to one number for each of ROWS parts of x.

    A compiler takes two kernels for a scalar, and many a small one for the scalars of all layers. So many rows it
    reduces in one kernel, which also puts them beside those of the other layers.
    """
    if not compiling():
        return reduce(x)
    if x.numel() % ROWS:
        return torch.constant_pad_nd(reduce(x).reshape(1), (0, ROWS - 1))
    return reduce(x.reshape(ROWS, -1), dim=1)


def totals(parts: Sequence[Tensor], reduce: Callable[..., Tensor]) -> Tensor:
    """The scalars of all layers as one vector, from what :func:`in_rows` made of each."""
    made = torch.stack(list(parts))
    return reduce(made, dim=1) if made.dim() > 1 else made


def anchor(inputs: Sequence[Tensor], masks: Sequence[Tensor | None] | None = None) -> Tensor:
    """Mean square of what counts of the model's inputs, which no weight can change: a float32 (or float64) scalar, for
    "anchored"."""
    both = zip(inputs, masks or [None] * len(inputs), strict=True)
    pairs = [(x.detach(), mask) for x, mask in both if x.is_floating_point()]
    if any(x.layout is not torch.strided for x, _ in pairs):
        raise ValueError("scale 'anchored' cannot measure a sparse input: use scale='relative' or scale='mean'")
    numbers = [x if mask is None else torch.where(mask, x, 0) for x, mask in pairs]
    if not numbers:
        raise ValueError(
            "scale 'anchored' divides by the energy of the model's input, and this input holds no floating-point "
            "numbers; use scale='relative' or scale='mean'"
        )
    dtype = max((wide(x) for x in numbers), key=lambda one: torch.finfo(one).bits)
    squares = [torch.linalg.vector_norm(x, dtype=dtype).square() for x in numbers]
    return torch.stack(squares).sum() / _least(sum(counted(x, mask) for x, mask in pairs))


def masked(x: Tensor, mask: Tensor | None) -> Tensor:
    """0 where x does not count. (On a CPU torch.where takes five times as long; what a tape holds has no NaN there.)"""
    return x if mask is None else x * mask


def counted(x: Tensor, mask: Tensor | None) -> int | Tensor:
    """How many elements of x count."""
    return x.numel() if mask is None else mask.sum() * (x.numel() // max(1, mask.numel()))


def noise_floors(found: Sequence[Moments | None], counts: Sequence[int]) -> Tensor | None:
    """For each layer the largest Σ d² that rounding alone can make behind a norm, where the norm's input does not vary
    but by rounding, as on a blank batch; 0 where it varies, or without a norm. A vector, or None if all are 0.

    A norm subtracts the mean. Of values that are all alike it leaves their rounding errors, up to 1/√eps times as
    large: d is then no more than that, and nothing can be measured by it.

    Args:
        found: of the norm behind which each d_m is.
        counts: number of elements of each d_m.
    """
    known = [one for one in found if one is not None]
    if not known:
        return None
    like = known[0].mean
    # A blank batch is blank in all groups: some tell, and a compiler copies fewer.
    groups = max(1, min(16, *(one.mean.numel() // 2 for one in known)))
    each = [one or known[0] for one in found]  # without a norm any will do: its floor is 0
    mean, inverse = _stack([x.reshape(-1)[:groups] for one in each for x in one[:2]]).unflatten(0, (-1, 2)).unbind(1)
    accuracy = torch.finfo(like.dtype).eps
    # Of the input itself, and of sums over it, which lose more.
    rounding = [torch.finfo(one.dtype).eps + 64 * accuracy for one in each]
    limits = [(16 * some) ** 2 / one.eps for some, one in zip(rounding, each, strict=True)]
    energy = mean.square().mean(1)
    most = energy * _vector([some**2 for some in rounding], like)
    # σ² as far as 1/σ tells it: beside eps a smaller one is lost.
    blank = inverse.square().reciprocal().mean(1) <= most + _vector(
        [one.eps * (1 + 4 * accuracy) for one in each], like
    )
    sizes = [0 if one is None else count for one, count in zip(found, counts, strict=True)]
    return torch.where(blank, energy * _vector(limits, like) * _vector(sizes, like), 0)


def _vector(numbers: Sequence[float], like: Tensor) -> Tensor | float:
    """Numbers that are the same in every step, as a tensor: no step waits until they are on the device. A compiler is
    given one number where all are alike."""
    if not compiling():
        return _kept(tuple(numbers), like.dtype, like.device)
    if all(one == numbers[0] for one in numbers):
        return numbers[0]
    return _stack([like.new_full((), one) for one in numbers])


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """torch.stack. A compiler copies up to 8 tensors by one kernel, and more of them by one for each."""
    if not compiling():
        return torch.stack(list(tensors))
    return torch.cat([torch.stack(list(tensors[i : i + 8])) for i in range(0, len(tensors), 8)])


@lru_cache(maxsize=256)
def _kept(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # kept for training, too
        return torch.tensor(numbers, dtype=dtype, pin_memory=device.type == "cuda").to(device, non_blocking=True)


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
    """The terms of all layers before λ, as one vector: few small kernels instead of many.

    Args:
        errors: Σ w (d − d')² of each layer, as :func:`squared_error` gives it.
        counts: number of elements of each d_m that count, for scales "mean" and "anchored".
        sizes: √Σ d² of each layer, as one vector, for scales "relative" and "ratio".
        floors: for these, Σ d² of each layer up to which it is rounding noise and counts as 0; None: 0.
        share: N / n, what a sum over n of N samples is multiplied by, for scale "sum".
        energy: mean square of the input, for scale "anchored".
    """
    if scale in AVERAGES:
        vector = totals([error / _least(count) for error, count in zip(errors, counts, strict=True)], torch.sum)
        return vector if energy is None else _divide(vector, energy.to(vector.dtype), energy == 0)
    vector = totals(errors, torch.sum)
    if scale == "sum":
        return vector if share == 1 else vector * share
    assert sizes is not None
    total = sizes.square()
    return _divide(vector, total, total.detach() <= (0 if floors is None else floors))


def _least(count: int | Tensor) -> int | Tensor:
    """At least 1, where a mask may leave nothing."""
    return count.clamp(min=1) if isinstance(count, Tensor) else max(1, count)


def _divide(vector: Tensor, total: Tensor, empty: Tensor) -> Tensor:
    """0 where there is nothing to compare with."""
    # Divide by 1 where nothing is there, then multiply by 0: a NaN in d' is never hidden.
    return vector / torch.where(empty, 1, total) * ~empty

"""The terms of the racecar loss and their weights λ."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.layout import memory_order

SCALES = ("relative", "ratio", "mean", "sum")
RELATIVE = ("relative", "ratio")
"""Σ (d − d')² / Σ d². In "relative" no gradient flows through the denominator, so that a layer can lower the term by
making d and d' smaller together, until nothing is left of them; in "ratio" it cannot."""

Weight = float | Tensor | Mapping[str, float | Tensor]


def squared_error(d: Tensor, reverse: Tensor, weight: Tensor | None) -> Tensor:
    """Σ w (d − d')², a float32 (or float64) scalar.

    Args:
        d: forward activation d_m, (n, …).
        reverse: d'_m of the same shape.
        weight: None, or a tensor that broadcasts against d_m without its batch dimension.
    """
    dtype = wide(d)
    if weight is not None or torch.compiler.is_compiling():
        # Compiled, the difference is not rounded before it is squared; but it, and the gradient of both sides, is kept
        # in the precision of the activations.
        d, reverse, weight = along_memory(d, reverse, weight)
        errors = (d - reverse).to(dtype).square()
        return (errors if weight is None else errors * weight.to(dtype)).sum()
    if d.dtype == reverse.dtype == dtype and d.is_contiguous() and reverse.is_contiguous():
        return F.mse_loss(reverse, d, reduction="sum")
    return SquaredError.apply(d, reverse, dtype)


class SquaredError(torch.autograd.Function):
    """Σ (d − d')² of activations in low precision, or channels last: mse_loss would keep copies of both in float32, and
    its gradient would forget the strides, which costs convolutions more than all else."""

    generate_vmap_rule = True

    @staticmethod
    def forward(d: Tensor, reverse: Tensor, dtype: torch.dtype) -> Tensor:
        # The difference is rounded as its gradient will be: in float32 its memory would cost more than all the rest.
        return torch.linalg.vector_norm(d - reverse, dtype=dtype).square()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])  # others keep them, too

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        d, reverse = ctx.saved_tensors
        gradient = (d - reverse) * (2 * gradients[0])
        return gradient.to(d.dtype), -gradient.to(reverse.dtype), None


def along_memory(d: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """``d`` and others of as many dimensions, in the order in which d lies in memory: for sums over all of it."""
    order = memory_order(d)
    return d.permute(order), *(None if one is None else one.permute(order) for one in others)


def size(d: Tensor, weight: Tensor | None, scale: str = "relative") -> Tensor:
    """√Σ d² over the features with w ≠ 0; a gradient flows through it for scale "ratio" alone."""
    d, weight = along_memory(d if scale == "ratio" else d.detach(), weight)
    if weight is not None:
        d = d * (weight != 0)
    return torch.linalg.vector_norm(d, dtype=wide(d))


def terms(errors: Sequence[Tensor], sizes: Sequence[Tensor], counts: Sequence[int], scale: str, share: float) -> Tensor:
    """The terms of all layers before λ, as one vector: few small kernels instead of many.

    Args:
        errors: Σ w (d − d')² of each layer.
        sizes: √Σ d² of each layer, for scales "relative" and "ratio".
        counts: number of elements of each d_m, for scale "mean".
        share: N / n, what a sum over n of N samples is multiplied by, for scale "sum".
    """
    if scale == "mean":
        return torch.stack([error / count for error, count in zip(errors, counts, strict=True)])
    vector = torch.stack(list(errors))
    if scale == "sum":
        return vector if share == 1 else vector * share
    total = torch.stack(list(sizes)).square()
    empty = total == 0
    # Divide by 1 where nothing is there, then multiply by 0: a NaN in d' is never hidden.
    return vector / torch.where(empty, 1, total) * ~empty


def wide(d: Tensor) -> torch.dtype:
    """The precision in which terms are summed: float32, or float64 for a model in float64."""
    return torch.float64 if d.dtype == torch.float64 else torch.float32


def check_weight(weight: Weight) -> None:
    """Refuse weights that cannot be meant."""
    if isinstance(weight, Mapping):
        if not weight:
            raise ValueError("weight is an empty dict: give at least one pattern, for example {'*': 1.0}")
        for pattern, one in weight.items():
            if not isinstance(pattern, str):
                raise TypeError(f"weight maps layer-name patterns (str) to numbers or tensors, not {pattern!r}")
            _check_one(one, f"weight[{pattern!r}]")
    else:
        _check_one(weight, "weight")


def _check_one(weight: float | Tensor, name: str) -> None:
    if isinstance(weight, Tensor):
        if not bool(torch.isfinite(weight).all()) or bool((weight < 0).any()):
            raise ValueError(f"{name} has negative, infinite or NaN elements: a weight is at least 0")
    elif not isinstance(weight, Real) or isinstance(weight, bool):
        raise TypeError(f"{name} must be a number or a tensor, not {type(weight).__name__}")
    elif not math.isfinite(weight) or weight < 0:
        raise ValueError(f"{name} must be a finite number of at least 0, not {weight}")


def layer_weights(weight: Weight, names: Sequence[Sequence[str]]) -> list[float | Tensor]:
    """λ for each layer: later patterns win, a layer that no pattern matches gets 0.

    Args:
        weight: as the user gave it.
        names: for each layer its name, also without the suffixes for reuse and for one of several weights.
    """
    if not isinstance(weight, Mapping):
        return [weight] * len(names)
    found: list[float | Tensor] = [0.0] * len(names)
    for pattern, one in weight.items():
        for i, spellings in enumerate(names):
            if _matches(pattern, spellings):
                found[i] = one
    return found


def unmatched(weight: Weight, names: Sequence[Sequence[str]]) -> bool:
    """Whether some layer is left out because no pattern matches it (not because its weight is 0)."""
    if not isinstance(weight, Mapping):
        return False
    return not all(any(_matches(pattern, spellings) for pattern in weight) for spellings in names)


def check_patterns(weight: Weight, names: Sequence[Sequence[str]], unseen: Sequence[Sequence[str]] = ()) -> None:
    """Refuse a pattern that matches no layer, neither one of ``names`` nor one that was not ``seen`` so far."""
    for pattern in weight if isinstance(weight, Mapping) else ():
        if not any(_matches(pattern, spellings) for spellings in (*names, *unseen)):
            known = ", ".join(repr(spellings[0]) for spellings in names)
            raise ValueError(f"weight pattern {pattern!r} matches no layer; the layers are: {known}")


def _matches(pattern: str, spellings: Sequence[str]) -> bool:
    return any(fnmatchcase(one, pattern) for one in spellings)


def spread(weight: Tensor, shape: torch.Size, batch: int, name: str) -> Tensor:
    """A tensor weight with the batch dimension put in, so that it broadcasts against d_m; refuses what does not fit."""
    sample = (*shape[:batch], *shape[batch + 1 :])
    pairs = zip(reversed(weight.shape), reversed(sample), strict=False)
    if weight.dim() > len(sample) or any(w not in (1, size) for w, size in pairs):
        raise ValueError(
            f"the weight of layer {name!r} has shape {tuple(weight.shape)}, which does not broadcast against one "
            f"sample of d_m, of shape {sample}"
        )
    return weight.reshape((1,) * (len(sample) - weight.dim()) + weight.shape).unsqueeze(batch)


def all_zero(weight: Weight) -> bool:
    """Whether a weight switches the reverse pass off."""
    return all(map(is_zero, weight.values() if isinstance(weight, Mapping) else (weight,)))


def is_zero(weight: float | Tensor) -> bool:
    """Whether a weight leaves its layer out."""
    return not bool((weight != 0).any()) if isinstance(weight, Tensor) else weight == 0

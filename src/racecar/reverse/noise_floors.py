"""Noise floors: how much of a layer's d behind a norm may be rounding noise alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from racecar.rules.norm import Moments
from racecar.support.compiling import compiling


def noise_floors(moments: Sequence[Moments | None], counts: Sequence[int]) -> Tensor | None:
    """For each layer the largest Σ d² that is only rounding noise behind a norm; None if it is 0 for all layers.

    A norm subtracts the mean of its input. If the input is constant but for rounding errors, as on a blank batch, the
    norm leaves these errors, up to 1/√eps times as large. d then is noise, and the term says nothing.

    Args:
        moments: of the input of the norm whose output leads to each d_m; None: there is no such norm.
        counts: number of elements of each d_m.

    Returns:
        A vector (layers,), 0 for layers without a norm or whose norm's input varies.
    """
    known = [m for m in moments if m is not None]
    if not known:
        return None
    like = known[0].mean
    # A blank batch is blank in all groups of the norm: a few of them suffice, and the compiler copies fewer numbers.
    groups = max(1, min(16, *(m.mean.numel() // 2 for m in known)))
    filled = [m or known[0] for m in moments]  # any moments serve for a layer without a norm: its floor is 0
    mean, inverse = _stack([x.reshape(-1)[:groups] for m in filled for x in m[:2]]).unflatten(0, (-1, 2)).unbind(1)
    accuracy = torch.finfo(like.dtype).eps
    # Relative errors of the input itself, and of sums over it, which are larger.
    errors = [torch.finfo(m.dtype).eps + 64 * accuracy for m in filled]
    limits = [(16 * error) ** 2 / m.eps for error, m in zip(errors, filled, strict=True)]
    energy = mean.square().mean(1)
    noise = energy * _vector([error**2 for error in errors], like)
    # σ² from 1/σ, which cannot tell a σ² far below eps.
    blank = inverse.square().reciprocal().mean(1) <= noise + _vector([m.eps * (1 + 4 * accuracy) for m in filled], like)
    sizes = [0 if m is None else count for m, count in zip(moments, counts, strict=True)]
    return torch.where(blank, energy * _vector(limits, like) * _vector(sizes, like), 0)


def _vector(numbers: Sequence[float], like: Tensor) -> Tensor | float:
    """Numbers that are the same in every step, as a tensor like another. It is cached, so that no step waits for its
    transfer to the device; compiled, it is a single number if all are equal."""
    if not compiling():
        return _cached_tensor(tuple(numbers), like.dtype, like.device)
    if all(number == numbers[0] for number in numbers):
        return numbers[0]
    return _stack([like.new_full((), number) for number in numbers])


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """torch.stack; compiled, in groups of 8: the compiler copies at most 8 tensors in one kernel, else one in each."""
    if not compiling():
        return torch.stack(list(tensors))
    return torch.cat([torch.stack(list(tensors[i : i + 8])) for i in range(0, len(tensors), 8)])


@lru_cache(maxsize=256)
def _cached_tensor(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # so that training can use the tensor, too
        return torch.tensor(numbers, dtype=dtype, pin_memory=device.type == "cuda").to(device, non_blocking=True)

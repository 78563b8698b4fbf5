"""Normalisations: re-applied in the reverse pass with the statistics of its own data; the model's never change."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.rules import masked_norm
from racecar.rules.context import NO_CONTEXT, NormStatistics, RuleContext, Seen, of_output
from racecar.rules.operation import Operation
from racecar.rules.registry import register
from racecar.rules.roles import Role
from racecar.support.compiling import compiling
from racecar.support.torch_private import batch_norm_with_statistics

_OUTPUTS = 264
"""Sums of which a GPU makes so many at once are not divided: two for each multiprocessor, of 132."""


def normalise_batch(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    eps: float,
    context: RuleContext = NO_CONTEXT,
) -> Tensor:
    """Batch norm that changes no running statistic: batch statistics in training, running ones otherwise.

    A channel with a single value has no statistics of its own, so the running ones serve there too. Where the
    reverse data has statistics, the running ones are these, and the batch's are left there. With a mask, the batch's
    are those of the positions that count.
    """
    mask, statistics = context
    single = x.numel() == x.shape[1]
    count = x.numel() // max(1, x.shape[1])
    if mask is not None and training and count > 1:
        made = masked_norm.standardise(x, mask, _dims(x), eps)
        if statistics is not None and mean is not None:
            statistics.leave(Seen(made.mean.detach(), made.inverse.detach(), eps, made.size))
        return masked_norm.scaled(made.out, weight, bias, x.dtype)
    if statistics is not None and mean is not None:
        if (training or statistics.gather) and count > 1:
            return _leaving(statistics, x, weight, bias, eps, count)
        if not training:
            mean, var = statistics.running(mean, var)
    if training and not (single and mean is not None):
        if compiling():
            return Normalised.apply(x, weight, bias, eps)
        mean = var = None
    elif mean is not None:
        if training and compiling():
            mean, var = _once(mean), None if var is None else _once(var)
        training = False
    # torch.batch_norm, not F.batch_norm: the latter refuses a single value per channel.
    return torch.batch_norm(x, weight, bias, mean, var, training, 0.0, eps, torch.backends.cudnn.enabled)


def _leaving(
    statistics: NormStatistics, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, count: int
) -> Tensor:
    """Batch norm of x by its own statistics, which are left for the reverse data."""
    if compiling():  # which finds these statistics only once
        with torch.no_grad():  # a detached x would be another one to the compiler
            statistics.leave(Seen(*_statistics(x, eps), eps, count))
        return Normalised.apply(x, weight, bias, eps)
    out, mean, inverse = batch_norm_with_statistics(x, weight, bias, None, None, 0.0, eps)
    statistics.leave(Seen(mean, inverse, eps, count))
    return out


def _once(statistic: Tensor) -> Tensor:
    """A running statistic that the forward pass has just updated, for a compiler: it would update it once more in the
    backward pass, from what it is by then. A sum over one element, which it keeps, is left as it is."""
    return statistic.unsqueeze(0).cumsum(0).squeeze(0)


def has_batch_statistics(op: Operation) -> bool:
    """Whether op is a batch norm, by function, that uses the statistics of what it is given."""
    return bool(op.get(5, "training", False)) if op.func in (F.batch_norm, torch.batch_norm) else False


def first_rows(op: Operation, x: Tensor, rows: Tensor) -> Tensor:
    """The part of ``op(x)`` that belongs to ``rows``, the first samples of x (N, C, …), for such a batch norm.

    For a compiler that would write the whole of op(x) to memory as soon as somebody wants a part of it. The statistics
    are spelt as torch's own decomposition spells them, so that the compiler finds them there already.
    """
    first = 3 if op.func is F.batch_norm else 1  # torch.batch_norm has weight and bias before the running statistics
    weight, bias, eps = op.get(first, "weight"), op.get(first + 1, "bias"), op.get(7, "eps", 1e-5)
    return _affine(rows, *_statistics(x, eps), weight, bias)


class Normalised(torch.autograd.Function):
    """Batch norm of x (N, C, …) by its own statistics, for a compiler: what is kept is x and the statistics, and the
    gradient takes two sums. That of torch.var_mean would find the mean once more."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        mean, inverse = _statistics(x, eps)
        given = [one for one in (weight, bias) if one is not None]
        ctx.has_weight, ctx.has_bias = weight is not None, bias is not None
        ctx.save_for_backward(x, mean, inverse, *given)
        return _affine(x, mean, inverse, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, inverse, *given = ctx.saved_tensors
        weight, bias = given[0] if ctx.has_weight else None, given[-1] if ctx.has_bias else None
        g = gradients[0]  # in its own precision: in float32 it would take twice as long to read
        centred = x.to(mean.dtype) - mean
        of_bias, of_slope = _channel_sums(g, centred)
        slope = inverse if weight is None else inverse * weight.view_as(inverse)
        count = x.numel() / mean.numel()
        of_x = (g - of_bias / count - centred * (of_slope * inverse.square() / count)) * slope
        return (
            of_x.to(x.dtype),
            None if weight is None else (of_slope * inverse).view_as(weight).to(weight.dtype),
            None if bias is None else of_bias.view_as(bias).to(bias.dtype),
            None,
        )


def _channel_sums(g: Tensor, centred: Tensor) -> tuple[Tensor, Tensor]:
    """Σ g and Σ g · centred of each channel, with the dimensions of both (N, C, …), in the precision of ``centred``.

    Of few channels a compiler divides each sum, and takes one more kernel to add up its parts. Divided by samples, and
    put side by side, the parts of both need but one.
    """
    dims, (samples, channels) = _dims(g), g.shape[:2]
    if g.dim() == 2 or not channels < _OUTPUTS <= samples * channels:
        return g.sum(dims, keepdim=True, dtype=centred.dtype), (g * centred).sum(dims, keepdim=True)
    parts = g.sum(dims[1:], dtype=centred.dtype), (g * centred).sum(dims[1:])
    of_bias, of_slope = torch.stack(parts).sum(1).view(2, 1, channels, *(1,) * (g.dim() - 2)).unbind()
    return of_bias, of_slope


def _dims(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _statistics(x: Tensor, eps: float, dims: list[int] | None = None) -> tuple[Tensor, Tensor]:
    """Mean and 1/σ of x over some dimensions, in float32 at least, with the dimensions of x; unless said otherwise of
    each channel of x (N, C, …)."""
    wide = x.dtype if x.dtype == torch.float64 else torch.float32
    var, mean = torch.var_mean(_cast(x, wide), _dims(x) if dims is None else dims, correction=0, keepdim=True)
    return mean, torch.rsqrt(var + eps)


class Moments(NamedTuple):
    """What a norm takes out of its input, for each group of values that it norms together."""

    mean: Tensor
    inverse: Tensor
    """1/σ, with eps added to σ²: what a compiled norm keeps anyway. A kernel that also wrote σ² down did not compile
    (torch 2.11, Triton's pass TritonGPURemoveLayoutConversions)."""
    eps: float
    dtype: torch.dtype
    """Of the input."""


def moments(op: Operation, x: Tensor) -> Moments | None:
    """Of a norm's input x, whole for a batch norm; None for a norm that subtracts no mean of its input."""
    dims: list[int]
    if has_batch_statistics(op):
        dims, eps = _dims(x), op.get(7, "eps", 1e-5)
    elif op.func in (F.instance_norm, torch.instance_norm) and op.get(5, "use_input_stats", True):
        dims, eps = list(range(2, x.dim())), op.get(7, "eps", 1e-5)
    elif op.func in (F.layer_norm, torch.layer_norm):
        dims, eps = list(range(x.dim() - len(op.get(1, "normalized_shape")), x.dim())), op.get(4, "eps", 1e-5)
    elif op.func in (F.group_norm, torch.group_norm):
        x, eps = x.reshape(x.shape[0], op.get(1, "num_groups"), -1), op.get(4, "eps", 1e-5)
        dims = [2]
    else:
        return None
    with torch.no_grad():  # a detached x would be another one for a compiler, which has these moments already
        return Moments(*_statistics(x, eps, dims), eps, x.dtype)


def _affine(rows: Tensor, mean: Tensor, inverse: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    slope = inverse if weight is None else inverse * weight.view_as(inverse)
    shift = -mean * slope if bias is None else bias.view_as(mean) - mean * slope
    return _cast(rows * slope + shift, rows.dtype)


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x.to(dtype), but no call where it is x itself: torch 2.11, tracing an autograd function, would return the result
    and what it was made of as two outputs, and give the gradient of one to the other."""
    return x if x.dtype == dtype else x.to(dtype)


@register(F.batch_norm, role=Role.NORM, takes_mask=of_output)
def batch_norm(op: Operation, x: Tensor) -> Tensor:
    """x (N, C, …)."""
    if len(op.args) == 8:  # as modules give them: less for torch.compile to trace
        _, mean, var, weight, bias, training, _, eps = op.args
    else:
        mean, var = op.get(1, "running_mean"), op.get(2, "running_var")
        weight, bias = op.get(3, "weight"), op.get(4, "bias")
        training, eps = op.get(5, "training", False), op.get(7, "eps", 1e-5)
    return normalise_batch(x, mean, var, weight, bias, training, eps, op.context)


@register(torch.batch_norm, role=Role.NORM, takes_mask=of_output)
def torch_batch_norm(op: Operation, x: Tensor) -> Tensor:
    """The C++ spelling: weight and bias stand before the running statistics."""
    _, weight, bias, mean, var, training, _, eps = op.args[:8]
    return normalise_batch(x, mean, var, weight, bias, training, eps, op.context)


@register(nn.SyncBatchNorm, role=Role.NORM, takes_mask=of_output)
def sync_batch_norm(op: Operation, x: Tensor) -> Tensor:
    """Each process normalises its own reverse data, so that the reverse pass needs no communication."""
    m = op.module
    assert isinstance(m, nn.SyncBatchNorm)
    training = m.training or m.running_mean is None
    return normalise_batch(x, m.running_mean, m.running_var, m.weight, m.bias, training, m.eps, op.context)


BATCH_NORMS = (batch_norm, torch_batch_norm, sync_batch_norm)
"""The rules that keep statistics of the reverse data."""

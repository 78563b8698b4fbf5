"""Batch norms: applied again with statistics of the reverse data. The running statistics of the model never change."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.rules import masked_norm
from racecar.rules.context import NO_CONTEXT, BatchStatistics, NormStatistics, RuleContext, of_output
from racecar.rules.operation import Operation
from racecar.rules.registry import register
from racecar.rules.roles import Role
from racecar.support.compiling import compiling
from racecar.support.torch_private import batch_norm_with_statistics

_PARALLEL_SUMS = 264
"""The number of sums that occupies a whole GPU, two for each of 132 multiprocessors. Fewer are split into parts."""


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
    """Batch norm of x (N, C, …) that changes no running statistic.

    In training it uses statistics of x (with a mask, of the positions that count), in evaluation ``mean`` and ``var``,
    the running statistics of the model. A channel with a single value uses the running statistics in training, too.
    With ``context.statistics``, the running statistics are those of the reverse data, and the statistics of x are
    recorded there.
    """
    mask, statistics = context
    single = x.numel() == x.shape[1]
    count = x.numel() // max(1, x.shape[1])
    if mask is not None and training and count > 1:
        masked = masked_norm.standardise(x, mask, _dims(x), eps)
        if statistics is not None and mean is not None:
            statistics.record(BatchStatistics(masked.mean.detach(), masked.inverse.detach(), eps, masked.size))
        return masked_norm.scaled(masked.out, weight, bias, x.dtype)
    if statistics is not None and mean is not None:
        if (training or statistics.in_evaluation) and count > 1:
            return _recorded_norm(statistics, x, weight, bias, eps, count)
        if not training:
            mean, var = statistics.running(mean, var)
    if training and not (single and mean is not None):
        if compiling():
            return Normalised.apply(x, weight, bias, eps)
        mean = var = None
    elif mean is not None:
        if training and compiling():
            mean, var = _snapshot(mean), None if var is None else _snapshot(var)
        training = False
    # torch.batch_norm, not F.batch_norm: the latter refuses a single value per channel.
    return torch.batch_norm(x, weight, bias, mean, var, training, 0.0, eps, torch.backends.cudnn.enabled)


def _recorded_norm(
    statistics: NormStatistics, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, count: int
) -> Tensor:
    """Batch norm of x by the statistics of x, which are recorded."""
    if compiling():  # the compiler computes these statistics only once
        with torch.no_grad():  # the compiler would take x.detach() for a different tensor
            statistics.record(BatchStatistics(*_statistics(x, eps), eps, count))
        return Normalised.apply(x, weight, bias, eps)
    out, mean, inverse = batch_norm_with_statistics(x, weight, bias, None, None, 0.0, eps)
    statistics.record(BatchStatistics(mean, inverse, eps, count))
    return out


def _snapshot(statistic: Tensor) -> Tensor:
    """The value of a running statistic after the forward pass updated it, for a compiler.

    A compiler would recompute that update in the backward pass, from the updated value. It does not recompute sums, so
    this is a sum over one element.
    """
    return statistic.unsqueeze(0).cumsum(0).squeeze(0)


def has_batch_statistics(op: Operation) -> bool:
    """Whether op is a call of a batch norm function that uses the statistics of its input."""
    return bool(op.get(5, "training", False)) if op.func in (F.batch_norm, torch.batch_norm) else False


def first_rows(op: Operation, x: Tensor, rows: Tensor) -> Tensor:
    """``op(x)`` for ``rows`` alone, the first samples of x (N, C, …); op is a batch norm by statistics of x.

    A compiler would write all of op(x) to memory if a part of it were used. The statistics are computed by the same
    calls as in torch's decomposition of batch norm, so that the compiler reuses them.
    """
    first = 3 if op.func is F.batch_norm else 1  # torch.batch_norm has weight and bias before the running statistics
    weight, bias, eps = op.get(first, "weight"), op.get(first + 1, "bias"), op.get(7, "eps", 1e-5)
    return _affine(rows, *_statistics(x, eps), weight, bias)


class Normalised(torch.autograd.Function):
    """Batch norm of x (N, C, …) by the statistics of x, for a compiler.

    It saves x and the statistics for backward, and its gradient takes two sums; the gradient of torch.var_mean would
    compute the mean again.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        mean, inverse = _statistics(x, eps)
        parameters = [tensor for tensor in (weight, bias) if tensor is not None]
        ctx.has_weight, ctx.has_bias = weight is not None, bias is not None
        ctx.save_for_backward(x, mean, inverse, *parameters)
        return _affine(x, mean, inverse, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, inverse, *parameters = ctx.saved_tensors
        weight, bias = parameters[0] if ctx.has_weight else None, parameters[-1] if ctx.has_bias else None
        g = gradients[0]  # not converted to float32, which would take twice as long to read
        centred = x.to(mean.dtype) - mean
        bias_sum, slope_sum = _channel_sums(g, centred)
        slope = inverse if weight is None else inverse * weight.view_as(inverse)
        count = x.numel() / mean.numel()
        x_gradient = (g - bias_sum / count - centred * (slope_sum * inverse.square() / count)) * slope
        return (
            x_gradient.to(x.dtype),
            None if weight is None else (slope_sum * inverse).view_as(weight).to(weight.dtype),
            None if bias is None else bias_sum.view_as(bias).to(bias.dtype),
            None,
        )


def _channel_sums(g: Tensor, centred: Tensor) -> tuple[Tensor, Tensor]:
    """Σ g and Σ g · centred per channel, for g and centred (N, C, …), as (1, C, 1, …) in the dtype of ``centred``.

    If there are few channels, a compiler splits each sum and launches one more kernel to add up its parts. Here both
    sums are split by samples and stacked, so that one kernel adds up the parts of both.
    """
    dims, (samples, channels) = _dims(g), g.shape[:2]
    if g.dim() == 2 or not channels < _PARALLEL_SUMS <= samples * channels:
        return g.sum(dims, keepdim=True, dtype=centred.dtype), (g * centred).sum(dims, keepdim=True)
    parts = g.sum(dims[1:], dtype=centred.dtype), (g * centred).sum(dims[1:])
    bias_sum, slope_sum = torch.stack(parts).sum(1).view(2, 1, channels, *(1,) * (g.dim() - 2)).unbind()
    return bias_sum, slope_sum


def _dims(x: Tensor) -> list[int]:
    """All dimensions of x (N, C, …) except the channels."""
    return [0, *range(2, x.dim())]


def _statistics(x: Tensor, eps: float, dims: list[int] | None = None) -> tuple[Tensor, Tensor]:
    """Mean and 1/√(σ² + eps) of x over ``dims``, which are kept with length 1; in float32 at least.

    Args:
        dims: by default all but the channels of x (N, C, …).
    """
    wide = x.dtype if x.dtype == torch.float64 else torch.float32
    var, mean = torch.var_mean(_cast(x, wide), _dims(x) if dims is None else dims, correction=0, keepdim=True)
    return mean, torch.rsqrt(var + eps)


class Moments(NamedTuple):
    """Mean and 1/σ by which a norm standardises its input, one of each per group of values normed together."""

    mean: Tensor
    inverse: Tensor
    """1/√(σ² + eps), which a compiled norm saves anyway. A kernel that also saved σ² did not compile (torch 2.11,
    Triton's pass TritonGPURemoveLayoutConversions)."""
    eps: float
    dtype: torch.dtype
    """The dtype of the input."""


def moments(op: Operation, x: Tensor) -> Moments | None:
    """The moments of a norm's input x (for a batch norm, of the whole batch); None if the norm subtracts no mean."""
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
    """x.to(dtype), without a call if x has that dtype.

    With the call, torch 2.11, tracing an autograd function, returns x and the result as two outputs and gives the
    gradient of one to the other.
    """
    return x if x.dtype == dtype else x.to(dtype)


@register(F.batch_norm, role=Role.NORM, keeps_statistics=True, takes_mask=of_output)
def batch_norm(op: Operation, x: Tensor) -> Tensor:
    """x (N, C, …), applied again."""
    if len(op.args) == 8:  # as modules pass them: less for torch.compile to trace
        _, mean, var, weight, bias, training, _, eps = op.args
    else:
        mean, var = op.get(1, "running_mean"), op.get(2, "running_var")
        weight, bias = op.get(3, "weight"), op.get(4, "bias")
        training, eps = op.get(5, "training", False), op.get(7, "eps", 1e-5)
    return normalise_batch(x, mean, var, weight, bias, training, eps, op.context)


@register(torch.batch_norm, role=Role.NORM, keeps_statistics=True, takes_mask=of_output)
def torch_batch_norm(op: Operation, x: Tensor) -> Tensor:
    """``torch.batch_norm``, applied again: its weight and bias stand before the running statistics."""
    _, weight, bias, mean, var, training, _, eps = op.args[:8]
    return normalise_batch(x, mean, var, weight, bias, training, eps, op.context)


@register(nn.SyncBatchNorm, role=Role.NORM, keeps_statistics=True, takes_mask=of_output)
def sync_batch_norm(op: Operation, x: Tensor) -> Tensor:
    """Applied again by each process to its reverse data alone, so that the reverse pass needs no communication."""
    m = op.module
    assert isinstance(m, nn.SyncBatchNorm)
    training = m.training or m.running_mean is None
    return normalise_batch(x, m.running_mean, m.running_var, m.weight, m.bias, training, m.eps, op.context)

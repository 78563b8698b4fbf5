"""Normalisations: re-applied on the way back with the statistics of the reverse data; nothing is ever updated."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar.rules.registry import Operation, forms, register


def normalise_batch(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    eps: float,
) -> Tensor:
    """Batch norm that changes no running statistic: batch statistics in training, running ones otherwise.

    A channel with a single value has no statistics of its own, so the running ones serve there too.
    """
    single = x.numel() == x.shape[1]
    if training and not (single and mean is not None):
        if torch.compiler.is_compiling():
            return _spelt_out(x, x, weight, bias, eps)
        mean = var = None
    elif mean is not None:
        if training and torch.compiler.is_compiling():
            mean, var = _once(mean), None if var is None else _once(var)
        training = False
    # torch.batch_norm, not F.batch_norm: the latter refuses a single value per channel.
    return torch.batch_norm(x, weight, bias, mean, var, training, 0.0, eps, torch.backends.cudnn.enabled)


def _once(statistic: Tensor) -> Tensor:
    """A running statistic that the forward pass has just updated, for a compiler: it would update it once more in the
    backward pass, from what it is by then. A sum over one element, which it keeps, is left as it is."""
    return statistic.unsqueeze(0).cumsum(0).squeeze(0)


def first_rows(op: Operation, x: Tensor, rows: Tensor) -> Tensor | None:
    """The part of ``op(x)`` that belongs to ``rows``, the first samples of x (N, C, …); None if op is no batch norm.

    For a compiler that would write the whole of op(x) to memory as soon as somebody wants a part of it. The statistics
    are spelt as torch's own decomposition spells them, so that the compiler finds them there already. No gradient
    flows.
    """
    if op.func is F.batch_norm:
        weight, bias = op.get(3, "weight"), op.get(4, "bias")
        training, eps = op.get(5, "training", False), op.get(7, "eps", 1e-5)
    elif op.func is torch.batch_norm:
        _, weight, bias, _, _, training, _, eps = op.args[:8]
    else:
        return None
    with torch.no_grad():
        return _spelt_out(rows, x, weight, bias, eps) if training else None


def _spelt_out(rows: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Normalise rows by the statistics of x (N, C, …): for a compiler, which can keep the statistics alone then."""
    wide = x.dtype if x.dtype == torch.float64 else torch.float32
    var, mean = torch.var_mean(x.to(wide), [0, *range(2, x.dim())], correction=0, keepdim=True)
    per_channel = (-1, *(1,) * (x.dim() - 2))
    slope = torch.rsqrt(var + eps)
    slope = slope if weight is None else slope * weight.reshape(per_channel)
    shift = -mean * slope
    shift = shift if bias is None else shift + bias.reshape(per_channel)
    return (rows * slope + shift).to(x.dtype)  # in this form the backward pass needs rows alone


@register(F.batch_norm, role="norm")
def batch_norm(op: Operation, x: Tensor) -> Tensor:
    """x (N, C, …)."""
    mean, var = op.get(1, "running_mean"), op.get(2, "running_var")
    weight, bias = op.get(3, "weight"), op.get(4, "bias")
    return normalise_batch(x, mean, var, weight, bias, op.get(5, "training", False), op.get(7, "eps", 1e-5))


@register(torch.batch_norm, role="norm")
def torch_batch_norm(op: Operation, x: Tensor) -> Tensor:
    """The C++ spelling: weight and bias stand before the running statistics."""
    _, weight, bias, mean, var, training, _, eps = op.args[:8]
    return normalise_batch(x, mean, var, weight, bias, training, eps)


@register(nn.SyncBatchNorm, role="norm")
def sync_batch_norm(op: Operation, x: Tensor) -> Tensor:
    """Each process normalises its own reverse data, so that the way back needs no communication."""
    m = op.module
    assert isinstance(m, nn.SyncBatchNorm)
    training = m.training or m.running_mean is None
    return normalise_batch(x, m.running_mean, m.running_var, m.weight, m.bias, training, m.eps)


@register(F.instance_norm, role="norm")
def instance_norm(op: Operation, x: Tensor) -> Tensor:
    """x (N, C, …); a single value per channel becomes the shift."""
    weight, bias, own = op.get(3, "weight"), op.get(4, "bias"), op.get(5, "use_input_stats", True)
    mean, var = (None, None) if own else (op.get(1, "running_mean"), op.get(2, "running_var"))
    return torch.instance_norm(
        x, weight, bias, mean, var, own, 0.0, op.get(7, "eps", 1e-5), torch.backends.cudnn.enabled
    )


@register(
    *forms("layer_norm", "group_norm", "rms_norm", "local_response_norm", "normalize"),
    role="norm",
)
def own_statistics(op: Operation, x: Tensor) -> Tensor:
    """Norms that look at one sample at a time: simply applied again."""
    return op(x)

"""Norms with separate statistics for each sample: applied again, without padding in the statistics."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.rules.context import of_known_output, of_output
from racecar.rules.masked_norm import in_groups, over_last, scaled, standardise
from racecar.rules.operation import Operation
from racecar.rules.registry import register
from racecar.rules.roles import Role
from racecar.rules.torch_functions import forms


@register(F.instance_norm, role=Role.NORM, takes_mask=of_output)
def instance_norm(op: Operation, x: Tensor) -> Tensor:
    """x (N, C, …), applied again; a single value per channel gives the shift."""
    mask, weight, bias = op.context.mask, op.get(3, "weight"), op.get(4, "bias")
    input_stats = op.get(5, "use_input_stats", True)
    mean, var = (None, None) if input_stats else (op.get(1, "running_mean"), op.get(2, "running_var"))
    if mask is not None and input_stats:
        out = standardise(x, mask, list(range(2, x.dim())), op.get(7, "eps", 1e-5)).out
        return scaled(out, weight, bias, x.dtype)
    return torch.instance_norm(
        x, weight, bias, mean, var, input_stats, 0.0, op.get(7, "eps", 1e-5), torch.backends.cudnn.enabled
    )


@register(*forms("group_norm"), role=Role.NORM, takes_mask=of_output)
def group_norm(op: Operation, x: Tensor) -> Tensor:
    """x (N, C, …), applied again; a single value per group gives the shift (F.group_norm raises an error for it)."""
    mask, weight, bias, eps = op.context.mask, op.get(2, "weight"), op.get(3, "bias"), op.get(4, "eps", 1e-5)
    if mask is not None:
        return scaled(in_groups(x, mask, op.get(1, "num_groups"), eps), weight, bias, x.dtype)
    return torch.group_norm(x, op.get(1, "num_groups"), weight, bias, eps, torch.backends.cudnn.enabled)


@register(
    *forms("layer_norm", "rms_norm", "local_response_norm", "normalize"), role=Role.NORM, takes_mask=of_known_output
)
def per_position_norm(op: Operation, x: Tensor) -> Tensor:
    """A norm of one sample at a time: applied again."""
    mask = op.context.mask
    if mask is not None and op.func in (F.layer_norm, torch.layer_norm):
        count = len(op.get(1, "normalized_shape"))
        if mask.shape[-count:].numel() > 1:  # the norm runs over tokens, too
            return over_last(x, mask, count, op.get(2, "weight"), op.get(3, "bias"), op.get(4, "eps", 1e-5))
    return op(x)

"""Keep the statistics that a batch norm of the forward pass computes of its input; torch throws them away."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from racecar.rules.norm import Moments
from racecar.support.precision import wide
from racecar.support.torch_private import batch_norm_with_statistics, in_function_mode, in_transform

BATCH_NORM = F.batch_norm


def watched_batch_norm(types: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Tensor, Moments | None]:
    """The output of ``F.batch_norm(*args, **kwargs)``, bit for bit, and the moments of its input, (C,) each: to
    compute them again takes as long as the norm itself.

    The moments are None in evaluation, in low precision, on other devices than a CPU, inside torch.func, and where
    subclasses of Tensor (in ``types``, as a function mode gets them) or another mode have to see the call as it is.
    """
    plain = types == (Tensor,) and not in_function_mode()
    return (_with_moments(*args, **kwargs) if plain else None) or (BATCH_NORM(*args, **kwargs), None)


def _with_moments(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Tensor, Moments | None] | None:
    """Output and moments, or None where ``F.batch_norm`` has to be called itself."""
    if not training or x.device.type != "cpu" or eps <= 0 or in_transform(x):  # without eps 1/σ of 0 is 0 there
        return None
    if x.dim() < 2 or x.numel() <= x.shape[1]:  # of a single value in each channel F.batch_norm complains
        return None
    out, mean, inverse = batch_norm_with_statistics(x, weight, bias, running_mean, running_var, momentum, eps)
    if mean.dtype != wide(x):  # of weights in low precision: too rough to tell what varies
        return out, None
    return out, Moments(mean, inverse, eps, x.dtype)

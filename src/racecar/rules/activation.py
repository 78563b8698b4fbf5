"""Activations: applied again in the reverse pass, with the same parameters."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar.rules.operation import Operation
from racecar.rules.registry import Rule, register
from racecar.rules.roles import Role
from racecar.rules.torch_functions import forms

FIXED_OPERAND = Rule(Role.ACTIVATION, "pointwise", lambda op, x: op(x))
"""The rule of functions of the data and a constant tensor that are not affine, such as c / x: applied again."""

SOFTMAX = ("softmax", "log_softmax", "softmin")

_ACTIVATIONS = (
    "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_sigmoid logsigmoid mish relu relu6 selu "
    "sigmoid silu softplus softshrink softsign tanh tanhshrink threshold expit"
)

_MATHS = (
    "abs acos acosh arctan asin asinh atan atanh clamp clamp_max clamp_min clip cos cosh deg2rad erf erfc exp exp2 "
    "expm1 log log10 log1p log2 logit nan_to_num reciprocal round rsqrt sign sin sinc sinh sqrt square tan trunc "
    "floor ceil frac __rdiv__ __rtruediv__ remainder fmod sgn"
)


@register(*forms(_ACTIVATIONS, _MATHS), role=Role.ACTIVATION, pointwise=True)
@register(*forms("pow", "__pow__", "__rpow__"), role=Role.ACTIVATION, pointwise=True, elementwise=True)
def pointwise(op: Operation, x: Tensor) -> Tensor:
    """An activation of every element separately: applied again."""
    return op(x)


@register(*forms("rrelu"), role=Role.ACTIVATION, pointwise=True)
def rrelu(op: Operation, x: Tensor) -> Tensor:
    """Leaky ReLU with the mean of the random slopes, which the reverse pass does not know."""
    lower, upper = op.get(1, "lower", 1 / 8), op.get(2, "upper", 1 / 3)
    return F.leaky_relu(x, (lower + upper) / 2)


@register(*forms("prelu"), role=Role.ACTIVATION)
def prelu(op: Operation, x: Tensor) -> Tensor:
    """Applied again; it has one slope per channel, so the layout matters."""
    return torch.prelu(x, op.get(1, "weight"))


@register(*forms("maximum", "minimum"), role=Role.ACTIVATION, elementwise=True)
def extreme(op: Operation, x: Tensor) -> Tensor:
    """The maximum or minimum of x and a constant or parameter: applied again."""
    return op(x)


@register(*forms("softmax"), role=Role.ACTIVATION, kind="softmax")
@register(*forms("log_softmax"), role=Role.ACTIVATION, kind="log_softmax")
@register(*forms("softmin"), role=Role.ACTIVATION, kind="softmin")
def softmax(op: Operation, x: Tensor) -> Tensor:
    """Applied again; a softmax at the end of a model is ignored by the plan."""
    return op(x)


@register(*forms("gumbel_softmax"), role=Role.ACTIVATION)
def gumbel_softmax(op: Operation, x: Tensor) -> Tensor:
    """Softmax without the random noise: the reverse pass draws no random numbers."""
    return F.softmax(x / op.get(1, "tau", 1), op.get(4, "dim", -1))

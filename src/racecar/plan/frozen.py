"""Frozen layers, whose weight is not trained: their terms are left out of the loss.

A layer is frozen if its weight has ``requires_grad`` False, or if no gradient reaches the weight because the model runs
the layer under ``no_grad``, like the teacher in a distillation, or detaches the weight.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from racecar.plan.layer import Layer
from racecar.support.torch_private import own_parameters

WeightParameters = list[tuple[nn.Module, str]] | None
"""The parameters that a layer's weight is computed from and that its gradient reaches, each as (module that holds it,
name in that module); None: the gradient reaches none."""


def weight_parameters(layer: Layer) -> WeightParameters:
    """The parameters that a layer's weight is computed from; its bias is not one of them."""
    owner = layer.op.owner
    if owner is None:
        return []
    if layer.cut_off:
        return None
    if layer.op.module is not None:  # a rule for a whole module: all its parameters
        return [(module, name) for module in layer.op.module.modules() for name in own_parameters(module)]
    return [(part.holder, part.parameter) for part in (owner, *owner.also) if not part.cut_off]


def frozen(layers: Sequence[WeightParameters], before: Sequence[bool]) -> tuple[bool, ...]:
    """One flag per layer: whether the layer is frozen now. Only reads flags, so it can be called in every step.

    Args:
        layers: the parameters of each layer's weight.
        before: the flags of an earlier call, which are used where plain tensors replace parameters, as in torch.func.
    """
    flags = []
    for parameters, was in zip(layers, before, strict=True):
        flag = parameters is None or len(parameters) > 0
        for module, name in parameters or ():
            weight = own_parameters(module).get(name)
            if isinstance(weight, nn.Parameter):
                flag = flag and not weight.requires_grad
            elif weight is not None:
                flag = flag and was
        flags.append(flag)
    return tuple(flags)

"""Frozen layers: those whose weight is not trained. Their terms are left out.

Either their weight has ``requires_grad`` False, or no gradient reaches it: they run in a ``no_grad`` of the model's
own, as the teacher of a student does, or use the weight detached.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from racecar.plan.layer import Layer
from racecar.support.torch_private import own_parameters

Behind = list[tuple[nn.Module, str]] | None
"""The parameters that a layer's weight is made of, as far as the gradient reaches them: the module that holds each, and
its name there. None: it reaches none."""


def behind(layer: Layer) -> Behind:
    """What stands behind a layer's weight; a bias does not count."""
    owner = layer.op.owner
    if owner is None:
        return []
    if layer.cut_off:
        return None
    if layer.op.module is not None:  # a rule for a whole module: all that it has
        return [(module, name) for module in layer.op.module.modules() for name in own_parameters(module)]
    return [(one.holder, one.parameter) for one in (owner, *owner.also) if not one.cut_off]


def frozen(layers: Sequence[Behind], before: Sequence[bool]) -> tuple[bool, ...]:
    """For each layer whether it is frozen now. Flags alone are read, so that it may be asked in every step.

    Args:
        layers: what stands behind their weights.
        before: what holds where plain tensors stand in for the parameters, as in torch.func.
    """
    found = []
    for parameters, was in zip(layers, before, strict=True):
        flag = parameters is None or len(parameters) > 0
        for module, name in parameters or ():
            weight = own_parameters(module).get(name)
            if isinstance(weight, nn.Parameter):
                flag = flag and not weight.requires_grad
            elif weight is not None:
                flag = flag and was
        found.append(flag)
    return tuple(found)

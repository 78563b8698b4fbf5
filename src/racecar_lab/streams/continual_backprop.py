"""Continual backprop: Algorithm 1 of Dohare et al. (2024), for one net."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar_lab.streams.nets import StreamNet, Tensors
from racecar_lab.streams.resets import activity, outgoing, renew
from racecar_lab.streams.updates import Moments

DECAY = 0.99
"""η, of the running utility."""


def begin(net: StreamNet, parameters: Tensors) -> Tensors:
    """For every block the units' utility and age, (C,), and how many units are to be replaced, ()."""
    kept: Tensors = {}
    for block in range(len(net.blocks)):
        zeros = torch.zeros_like(parameters[f"{net.layers[block]}.bias"])
        kept |= {f"{block}.utility": zeros, f"{block}.age": zeros.clone(), f"{block}.count": zeros.sum()}
    return kept


def replace_units(
    net: StreamNet,
    parameters: Tensors,
    moments: Moments,
    kept: Tensors,
    units: list[Tensor],
    key: Tensor,
    number: Tensor,
    rate: Tensor,
    maturity: Tensor,
) -> tuple[Tensors, Moments, Tensors]:
    """After an optimiser's step: in each layer the mature unit of lowest utility starts anew, when it is time.

    u ← η u + (1 − η) mean|h| Σ|w_out|, the weights being those after the step. A layer's count grows by ``rate`` times
    its mature units; above 1 a unit is replaced, and the count falls by 1. Moments of replaced weights are cleared,
    which the algorithm, written for SGD, leaves open.

    Args:
        units: every block's activations in this step's forward pass, (N, C, …).
        rate: ρ, shape ().
        maturity: the age that a unit has to exceed, in steps, shape ().
    """
    kept, slots = dict(kept), {name: i for i, name in enumerate(parameters)}
    for block, h in enumerate(units):
        width, name = h.shape[1], f"{net.layers[block]}.weight"
        away = outgoing(net, block, parameters, width).abs().sum((0, 2))
        utility = DECAY * kept[f"{block}.utility"] + (1 - DECAY) * activity(h) * away
        age = kept[f"{block}.age"] + 1
        mature = age > maturity
        count = kept[f"{block}.count"] + rate * mature.sum()
        now = (count > 1) & mature.any()
        worst = utility.masked_fill(~mature, torch.inf).argmin()
        which = now & (torch.arange(width, device=h.device) == worst)
        fresh = net.fresh(name, key, number + slots[name], (1, *parameters[name].shape[1:]))
        parameters, moments = renew(net, block, which, fresh, parameters, moments)
        kept[f"{block}.utility"] = utility.masked_fill(which, 0.0)
        kept[f"{block}.age"] = age.masked_fill(which, 0.0)
        kept[f"{block}.count"] = count - now.to(count.dtype)
    return parameters, moments, kept

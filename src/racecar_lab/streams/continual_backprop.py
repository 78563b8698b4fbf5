"""Continual backprop: Algorithm 1 of Dohare et al. (2024), for one net."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar_lab.streams.nets import StreamNet, Tensors
from racecar_lab.streams.resets import activity, outgoing, renew
from racecar_lab.streams.updates import Moments

DECAY = 0.99
"""η, the decay rate of the running average of a unit's utility."""


def initial_state(net: StreamNet, parameters: Tensors) -> Tensors:
    """The algorithm's state before the first step, all zeros: for every block the units' utility and age, each of shape
    (C,), and the count of units that are due to be replaced, shape ()."""
    state: Tensors = {}
    for block in range(len(net.blocks)):
        zeros = torch.zeros_like(parameters[f"{net.layers[block]}.bias"])
        state |= {f"{block}.utility": zeros, f"{block}.age": zeros.clone(), f"{block}.count": zeros.sum()}
    return state


def replace_units(
    net: StreamNet,
    parameters: Tensors,
    moments: Moments,
    state: Tensors,
    units: list[Tensor],
    key: Tensor,
    number: Tensor,
    rate: Tensor,
    maturity: Tensor,
) -> tuple[Tensors, Moments, Tensors]:
    """Reinitialise, after an optimiser's step, the mature unit of lowest utility in each layer where a unit is due.

    Utilities are u ← η u + (1 − η) mean|h| Σ|w_out|, with the weights after the step. A layer's count grows by ``rate``
    times the number of its mature units; above 1 a unit is replaced, and the count falls by 1. The optimiser's moments
    of replaced weights are set to 0; the algorithm, written for SGD, does not say what to do with them.

    Args:
        moments: the optimiser's moments.
        state: utilities, ages and counts, from :func:`initial_state` or from the last step.
        units: every block's activations in this step's forward pass, (N, C, …).
        key, number: the net's random key, and the number of this step's first random draw.
        rate: the replacement rate ρ, shape ().
        maturity: the age in steps that a unit has to exceed, shape ().

    Returns:
        The parameters, the moments and the state after it.
    """
    state, slots = dict(state), {name: i for i, name in enumerate(parameters)}
    for block, h in enumerate(units):
        width, name = h.shape[1], f"{net.layers[block]}.weight"
        outgoing_sum = outgoing(net, block, parameters, width).abs().sum((0, 2))
        utility = DECAY * state[f"{block}.utility"] + (1 - DECAY) * activity(h) * outgoing_sum
        age = state[f"{block}.age"] + 1
        mature = age > maturity
        count = state[f"{block}.count"] + rate * mature.sum()
        due = (count > 1) & mature.any()
        worst = utility.masked_fill(~mature, torch.inf).argmin()
        replaced = due & (torch.arange(width, device=h.device) == worst)
        fresh = net.fresh(name, key, number + slots[name], (1, *parameters[name].shape[1:]))
        parameters, moments = renew(net, block, replaced, fresh, parameters, moments)
        state[f"{block}.utility"] = utility.masked_fill(replaced, 0.0)
        state[f"{block}.age"] = age.masked_fill(replaced, 0.0)
        state[f"{block}.count"] = count - due.to(count.dtype)
    return parameters, moments, state

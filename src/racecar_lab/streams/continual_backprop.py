"""Continual backprop: Algorithm 1 of Dohare et al. (2024), for one net.

The optimiser's moments of replaced weights become 0; the algorithm, written for SGD, does not say what to do with them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from racecar_lab.streams.nets import StreamNet, Tensors
from racecar_lab.streams.resets import activity, outgoing

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


def choose_units(
    net: StreamNet, parameters: Tensors, state: Tensors, units: list[Tensor], rate: Tensor, maturity: Tensor
) -> tuple[list[Tensor], Tensors]:
    """The units that are replaced after an optimiser's step: the mature one of lowest utility, of each block where one
    is due.

    Utilities are u ← η u + (1 − η) mean|h| Σ|w_out|, with the weights after the step. A block's count grows by ``rate``
    times the number of its mature units; above 1 a unit is replaced, and the count falls by 1.

    Args:
        parameters: those after the optimiser's step.
        state: utilities, ages and counts, from :func:`initial_state` or from the last step.
        units: every block's activations in this step's forward pass, (N, C, …).
        rate: the replacement rate ρ, shape ().
        maturity: the age in steps that a unit has to exceed, shape ().

    Returns:
        The units of every block, (C,), bool, and the state after the step.
    """
    chosen, after = [], {}
    for block, h in enumerate(units):
        width = h.shape[1]
        outgoing_sum = outgoing(net, block, parameters, width).abs().sum((0, 2))
        utility = DECAY * state[f"{block}.utility"] + (1 - DECAY) * activity(h) * outgoing_sum
        age = state[f"{block}.age"] + 1
        mature = age > maturity
        count = state[f"{block}.count"] + rate * mature.sum()
        due = (count > 1) & mature.any()
        worst = utility.masked_fill(~mature, torch.inf).argmin()
        replaced = due & (torch.arange(width, device=h.device) == worst)
        chosen.append(replaced)
        after[f"{block}.utility"] = utility.masked_fill(replaced, 0.0)
        after[f"{block}.age"] = age.masked_fill(replaced, 0.0)
        after[f"{block}.count"] = count - due.to(count.dtype)
    return chosen, after

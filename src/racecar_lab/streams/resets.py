"""Units that start anew: what ReDo and continual backprop share, and ReDo itself (Sokar et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar_lab.streams.nets import StreamNet, Tensors
from racecar_lab.streams.updates import Moments

WINDOW = 64
"""Steps before a check over which ReDo takes its mean of |h|: a single small batch calls units dormant that are not."""


def activity(units: Tensor) -> Tensor:
    """Mean of |h| over the batch and all positions, (N, C, …) → (C,)."""
    return units.abs().transpose(0, 1).flatten(1).mean(1)


def outgoing(net: StreamNet, block: int, parameters: Tensors, width: int) -> Tensor:
    """The weights that lead away from a block's units, (out, C, positions): a convolution's kernel by its input
    channels, a linear layer's columns by the channels that were flattened."""
    weight = parameters[f"{net.layers[block + 1]}.weight"]
    return weight.reshape(len(weight), width, -1)


def renew(
    net: StreamNet, block: int, which: Tensor, fresh: Tensor, parameters: Tensors, moments: Moments
) -> tuple[Tensors, Moments]:
    """Units start anew: fresh weights in, bias 0, weights out 0, and all moments of these 0.

    Args:
        which: of the block's units, (C,), bool.
        fresh: their weights in, (C, …) or (1, …).
    """
    op, after, norm = net.layers[block], net.layers[block + 1], f"blocks.{block}.norm"
    weight = parameters[f"{op}.weight"]
    rows = which.reshape(-1, *(1,) * (weight.dim() - 1))
    new: dict[str, tuple[Tensor, Tensor | float]] = {
        f"{op}.weight": (rows, fresh),
        f"{op}.bias": (which, 0.0),
        f"{norm}.weight": (which, 1.0),
        f"{norm}.bias": (which, 0.0),
    }
    out = outgoing(net, block, parameters, len(which))
    columns = which.reshape(1, -1, 1).expand(out.shape).reshape(parameters[f"{after}.weight"].shape)
    new[f"{after}.weight"] = (columns, 0.0)
    parameters = dict(parameters)
    moments = {kind: dict(each) for kind, each in moments.items()}
    for name, (mask, value) in new.items():
        if name not in parameters:
            continue
        old = parameters[name]
        parameters[name] = torch.where(mask, value, old) if isinstance(value, Tensor) else old.masked_fill(mask, value)
        for each in moments.values():
            if each[name].shape == old.shape:  # a count of steps may be that of the whole parameter
                each[name] = each[name].masked_fill(mask, 0.0)
    return parameters, moments


def count_activity(kept: Tensors, units: list[Tensor], step: Tensor, period: Tensor) -> Tensors:
    """The sums of |h|, (C,) each, over the last steps before a check; 0 outside them."""
    since = torch.remainder(step - 1, period)
    far, first = since < period - WINDOW, since == 0
    sums = [kept[f"{i}"].masked_fill(first, 0.0) + activity(one) for i, one in enumerate(units)]
    return {f"{i}": one.masked_fill(far, 0.0) for i, one in enumerate(sums)}


def redo(
    net: StreamNet,
    parameters: Tensors,
    moments: Moments,
    kept: Tensors,
    key: Tensor,
    number: Tensor,
    step: Tensor,
    threshold: Tensor,
    period: Tensor,
) -> tuple[Tensors, Moments]:
    """In every ``period``-th step units whose mean |h| is at most ``threshold`` times their layer's mean start anew.

    All scores are taken before the first unit is changed.
    """
    due = torch.remainder(step, period) == 0
    slots = {name: i for i, name in enumerate(parameters)}
    for block in range(len(net.blocks)):
        total, name = kept[f"{block}"], f"{net.layers[block]}.weight"
        which = due & (total <= threshold * total.mean())
        fresh = net.fresh(name, key, number + slots[name])
        parameters, moments = renew(net, block, which, fresh, parameters, moments)
    return parameters, moments

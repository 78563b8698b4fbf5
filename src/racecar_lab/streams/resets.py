"""Reinitialising units: what ReDo and continual backprop have in common, and ReDo itself (Sokar et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor

from racecar_lab.streams.nets import StreamNet, Tensors
from racecar_lab.streams.updates import Moments

WINDOW = 64
"""Number of steps before a check over which ReDo averages |h|: by one small batch, too many units would be dormant."""


def activity(units: Tensor) -> Tensor:
    """Mean of |h| of every unit over the batch and all positions: (N, C, …) → (C,)."""
    return units.abs().transpose(0, 1).flatten(1).mean(1)


def outgoing(net: StreamNet, block: int, parameters: Tensors, width: int) -> Tensor:
    """The next layer's weights on a block's units, (out, C, positions).

    Of a convolution they are grouped by input channel, of a linear layer by the channel that its columns were before
    flattening.

    Args:
        width: the number C of the block's units.
    """
    weight = parameters[f"{net.layers[block + 1]}.weight"]
    return weight.reshape(len(weight), width, -1)


def renew(
    net: StreamNet, block: int, selected: Tensor, fresh: Tensor, parameters: Tensors, moments: Moments
) -> tuple[Tensors, Moments]:
    """Reinitialise units of a block: fresh incoming weights, bias 0, outgoing weights 0, the optimiser's moments 0.

    Args:
        selected: which of the block's units, (C,), bool.
        fresh: the new incoming weights, (C, …) or (1, …).
    """
    op, after, norm = net.layers[block], net.layers[block + 1], f"blocks.{block}.norm"
    weight = parameters[f"{op}.weight"]
    rows = selected.reshape(-1, *(1,) * (weight.dim() - 1))
    new: dict[str, tuple[Tensor, Tensor | float]] = {
        f"{op}.weight": (rows, fresh),
        f"{op}.bias": (selected, 0.0),
        f"{norm}.weight": (selected, 1.0),
        f"{norm}.bias": (selected, 0.0),
    }
    grouped = outgoing(net, block, parameters, len(selected))
    columns = selected.reshape(1, -1, 1).expand(grouped.shape).reshape(parameters[f"{after}.weight"].shape)
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


def count_activity(sums: Tensors, units: list[Tensor], step: Tensor, period: Tensor) -> Tensors:
    """ReDo's sums of each unit's mean |h| over the last ``WINDOW`` steps before a check, after another step.

    Args:
        sums: for every block the sum so far, (C,).
        units: every block's activations in this step, (N, C, …).
        step: the number of the step, from 1, shape ().
        period: steps between two checks, shape ().

    Returns:
        The sums with this step, 0 as long as the window has not begun.
    """
    since = torch.remainder(step - 1, period)
    before_window, first = since < period - WINDOW, since == 0
    updated = [sums[f"{i}"].masked_fill(first, 0.0) + activity(h) for i, h in enumerate(units)]
    return {f"{i}": total.masked_fill(before_window, 0.0) for i, total in enumerate(updated)}


def redo(
    net: StreamNet,
    parameters: Tensors,
    moments: Moments,
    sums: Tensors,
    key: Tensor,
    number: Tensor,
    step: Tensor,
    threshold: Tensor,
    period: Tensor,
) -> tuple[Tensors, Moments]:
    """Reinitialise, in every ``period``-th step, units whose mean |h| is at most ``threshold`` times the layer's.

    ``sums`` holds the activity of all blocks as measured before any unit is changed (:func:`count_activity`).
    """
    due = torch.remainder(step, period) == 0
    slots = {name: i for i, name in enumerate(parameters)}
    for block in range(len(net.blocks)):
        total, name = sums[f"{block}"], f"{net.layers[block]}.weight"
        dormant = due & (total <= threshold * total.mean())
        fresh = net.fresh(name, key, number + slots[name])
        parameters, moments = renew(net, block, dormant, fresh, parameters, moments)
    return parameters, moments

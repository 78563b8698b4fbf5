"""Replacing units by new ones: what ReDo and continual backprop have in common, and the units that ReDo replaces."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from racecar_lab.streams.nets import StreamNet, Tensors
from racecar_lab.streams.updates import Moments

WINDOW = 64
"""Number of steps before a check over which ReDo averages the activations |h| of a unit: judged by one small batch, too
many units would be dormant."""


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
    net: StreamNet,
    parameters: Tensors,
    moments: Moments,
    replaced: Sequence[Tensor],
    fresh: Callable[[str], Tensor],
) -> tuple[Tensors, Moments]:
    """Parameters and moments with units replaced: fresh incoming weights, bias 0, outgoing weights 0, the optimiser's
    moments 0.

    Args:
        replaced: which units of every block, each (C,), bool.
        fresh: from the name of a weight to new values, (C, …), or (1, …) for all units of a block.
    """
    parameters = dict(parameters)
    moments = {kind: dict(tensors) for kind, tensors in moments.items()}
    for block, units in enumerate(replaced):
        op, after, norm = net.layers[block], net.layers[block + 1], f"blocks.{block}.norm"
        weight = parameters[f"{op}.weight"]
        grouped = outgoing(net, block, parameters, len(units))
        columns = units.reshape(1, -1, 1).expand(grouped.shape).reshape(parameters[f"{after}.weight"].shape)
        new: dict[str, tuple[Tensor, Tensor | float]] = {
            f"{op}.weight": (units.reshape(-1, *(1,) * (weight.dim() - 1)), fresh(f"{op}.weight")),
            f"{op}.bias": (units, 0.0),
            f"{norm}.weight": (units, 1.0),
            f"{norm}.bias": (units, 0.0),
            f"{after}.weight": (columns, 0.0),
        }
        for name, (mask, value) in new.items():
            if name not in parameters:
                continue
            parameters[name] = torch.where(mask, value, parameters[name])
            for tensors in moments.values():
                if tensors[name].shape == parameters[name].shape:  # a count of steps may be that of all of them
                    tensors[name] = tensors[name].masked_fill(mask, 0.0)
    return parameters, moments


def count_activity(sums: Tensors, units: list[Tensor], step: Tensor, period: Tensor) -> Tensors:
    """ReDo's sums of each unit's mean |h| over the last ``WINDOW`` steps before a check, after another step.

    Args:
        sums: for every block the sum so far, (C,).
        units: every block's activations in this step, (N, C, …).
        step: the number of the step, from 1, shape ().
        period: number of steps between two checks, shape ().

    Returns:
        The sums with this step, 0 as long as the window has not begun.
    """
    since = torch.remainder(step - 1, period)
    before_window, first = since < period - WINDOW, since == 0
    updated = [sums[f"{i}"].masked_fill(first, 0.0) + activity(h) for i, h in enumerate(units)]
    return {f"{i}": total.masked_fill(before_window, 0.0) for i, total in enumerate(updated)}


def dormant_units(sums: Tensors, step: Tensor, threshold: Tensor, period: Tensor) -> list[Tensor]:
    """The units that ReDo replaces (Sokar et al. 2023): in every ``period``-th step those whose mean |h| is at most
    ``threshold`` times the block's; of every block, (C,), bool.

    Args:
        sums: for every block the sums of mean |h| over the steps before (:func:`count_activity`), (C,).
        step: the number of the step, from 1, shape ().
        threshold: τ, shape ().
        period: number of steps between two checks, shape ().
    """
    due = torch.remainder(step, period) == 0
    return [due & (total <= threshold * total.mean()) for total in sums.values()]

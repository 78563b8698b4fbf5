"""Checks of what an information plane is estimated from, and the choice of its bins."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from racecar.inspect.activations import Activation
from racecar.inspect.mutual_information import row_codes
from racecar.racecar import call_arguments
from racecar.watch.inputs import input_tensors

SLACK = 0.01
"""How far a value may lie outside a fixed range by rounding, as a share of the range; it goes to the outermost bin."""


def label_codes(labels: Tensor) -> Tensor:
    """Labels (N,) as class numbers (N,) from 0 up without gaps."""
    try:
        labels = torch.as_tensor(labels)
    except (TypeError, ValueError):
        raise TypeError(f"labels must be a tensor of shape (N,), not {type(labels).__name__}") from None
    if labels.dim() != 1 or not len(labels):
        hint = "; labels.argmax(1) makes them of one-hot rows" if labels.dim() == 2 else ""
        raise ValueError(f"labels must be of shape (N,), one per input, not {tuple(labels.shape)}{hint}")
    if bool((labels != labels).any()):
        raise ValueError("labels have NaN in them")
    return torch.unique(labels, return_inverse=True)[1]


def input_codes(inputs: Any, n: int) -> Tensor:
    """Number of each sample's distinct input, (n,); input tensors without a batch of n count as equal for all."""
    codes = [row_codes(x) for x in input_tensors(*call_arguments(inputs)) if x.dim() and len(x) == n]
    if not codes:
        raise ValueError(f"there are {n} labels, but no input has {n} samples")
    return row_codes(torch.stack(codes, 1)) if len(codes) > 1 else codes[0]


def extent(activation: Activation, n: int) -> tuple[float, float]:
    """The least and the largest value of an activation; raises if it is not n real, finite samples."""
    d, name = activation.tensor.detach(), activation.name
    if d.is_complex():
        raise TypeError(f"activation {name} is complex: only real values can be binned")
    if not d.numel() or not d.dim() or len(d) != n:
        raise ValueError(
            f"activation {name} has shape {tuple(d.shape)}, not one entry for each of {n} labels: leave it out by "
            "layers=, if that is right"
        )
    low, high = (float(end) for end in torch.aminmax(d))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"activation {name} (read by {activation.layer or 'the model'}) has infinite or NaN values")
    return low, high


def choose_binning(
    activation: Activation, extent: tuple[float, float], binning: str, range: tuple[float, float] | None
) -> tuple[str, tuple[float, float]]:
    """Resolve binning "auto" for one activation.

    Args:
        activation: the activation to bin.
        extent: its least and largest value.
        binning: "auto", "fixed", "range" or "mass".
        range: (low, high) for "fixed"; None: that of the activation function.

    Returns:
        "fixed", "range" or "mass", and the (low, high) that is divided into bins.
    """
    limits = range or activation.range
    if binning == "auto":
        binning = "range" if limits is None else "fixed"
    if binning != "fixed":
        return binning, extent
    if limits is None:
        raise ValueError(
            f"activation {activation.name} has no range of its own: give range=(low, high), or use binning='auto'"
        )
    low, high = float(limits[0]), float(limits[1])
    slack, (least, largest) = SLACK * (high - low), extent
    if least < low - slack or largest > high + slack:
        name = activation.name
        raise ValueError(
            f"activation {name} has values from {least:g} to {largest:g}, outside the range ({low:g}, {high:g})"
        )
    return binning, (low, high)

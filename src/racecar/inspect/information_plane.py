"""The information plane: how much every layer tells of the input, I(X;D), and of the label, I(D;Y)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from racecar.inspect.activations import Activation, activations
from racecar.inspect.mutual_information import (
    BINNINGS,
    NoiseBounds,
    bin_codes,
    bin_edges,
    check_range,
    entropy,
    mutual_information,
    noise_bounds,
    row_codes,
)
from racecar.inspect.unwrap import unwrapped
from racecar.racecar import call_arguments
from racecar.watch.batches import ExampleInputs, first_of
from racecar.watch.inputs import input_tensors
from racecar.watch.names import shown

SWEEP = (2, 5, 10, 20, 30, 50, 100, 200)
"""Numbers of bins that show how far a plane depends on its bins."""
SLACK = 0.01
"""By how much of a fixed range a value may leave it, as rounding does; it then counts to the outermost bin."""


class SaturationWarning(UserWarning):
    """I(X;D) reaches H(X): the bins give every input a code of its own, so it counts inputs and measures nothing."""


@dataclass(frozen=True)
class PlaneRow:
    """One layer in the information plane."""

    name: str
    """"d1", "d2", …"""
    layer: str
    """The layer that reads it; "output" for the last."""
    kind: str
    """What made it: "input", "tanh", "relu", …"""
    i_xd: float
    """I(X;D), bits."""
    i_dy: float
    """I(D;Y), bits."""
    codes: int
    """How many distinct codes the samples have."""
    bins: int
    binning: str
    """"fixed", "range" or "mass"."""
    range: tuple[float, float]
    """The range that "fixed" divides, or the least and the largest value."""
    saturated: bool
    """Whether I(X;D) reaches H(X), which is log2 N for N distinct inputs."""
    bounds: NoiseBounds | None
    """The second opinion, if asked for."""


@dataclass(frozen=True)
class InformationPlane:
    """I(X;D) and I(D;Y) of the layers of one model; iterable, and printable as a table."""

    rows: tuple[PlaneRow, ...]
    samples: int
    inputs: int
    """How many of the samples differ in their input."""
    h_x: float
    """H(X), the ceiling of I(X;D), bits."""
    h_y: float
    """H(Y), the ceiling of I(D;Y), bits."""

    def __iter__(self) -> Iterator[PlaneRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> PlaneRow:
        return self.rows[i]

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        head = ["d", "layer", "made by", "bins", "codes", "I(X;D)", "I(D;Y)"]
        if any(row.bounds for row in self.rows):
            head += ["noise σ", "I(X;D+noise)", "I(D+noise;Y)", "KDE"]
        table = [[*head, "note"], *(_cells(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table]
        lines.insert(1, "  ".join("-" * w for w in widths))
        lines.append(
            f"{self.samples} samples, {self.inputs} distinct inputs; bits; "
            f"ceilings H(X) = {self.h_x:.3f}, H(Y) = {self.h_y:.3f}"
        )
        return "\n".join(lines)


def information_plane(
    model: nn.Module,
    inputs: ExampleInputs,
    labels: Tensor,
    layers: Sequence[str] | str | None = None,
    *,
    bins: int = 30,
    binning: str = "auto",
    range: tuple[float, float] | None = None,
    bounds: bool = False,
    sigma: float | None = None,
) -> InformationPlane:
    """I(X;D) and I(D;Y) in bits for every layer of a model, on the given samples.

    X is the index of the distinct input (equal inputs are one X), D the layer's activation with every neuron put into
    a bin, Y the label. A network is deterministic, so for distinct inputs I(X;D) = H(D): a measure of how the bins
    cluster the samples, not of the network alone. Look at ``bin_sweep`` and at the bounds before believing it.

    Args:
        model: any model that Racecar can plan.
        inputs: as for ``Racecar``: a tensor, a tuple of arguments or a dict of keyword arguments.
        labels: (N,) integers, or any values that tell the classes apart.
        layers: names ("d3") or layer-name patterns; all of them if None.
        bins: how many bins.
        binning: "fixed" divides a fixed range into equal widths, "range" the span of the layer's own values, "mass"
            gives each bin as many of the layer's values. "auto": "fixed" where the activation has a range (tanh,
            sigmoid, softmax, …), else "range". All neurons of a layer share their bins.
        range: (low, high) of "fixed" for all layers, in place of each activation's own.
        bounds: whether to bound I(X;D+noise) and I(D+noise;Y), too; takes time that grows with N².
        sigma: the noise of the bounds, in units of the activations. None: what rounding to one bin adds, the width of
            the layer's range / (bins · √12), so that both opinions are of one resolution.

    Warns:
        SaturationWarning: I(X;D) reaches H(X) in some layers other than the input itself.
    """
    if isinstance(inputs, list):
        inputs = first_of(inputs, unwrapped(model))
    found = activations(model, inputs, layers)
    result = plane(found, labels, inputs, bins=bins, binning=binning, range=range, bounds=bounds, sigma=sigma)
    if full := [row.name for row in result if row.saturated and row.kind != "input"]:
        warnings.warn(
            f"I(X;D) reaches its ceiling, {result.h_x:.3f} bits, at {', '.join(full)}: {bins} bins give every input a "
            "code of its own; take fewer bins or more inputs, or look at the bounds",
            SaturationWarning,
            stacklevel=2,
        )
    return result


def bin_sweep(
    model: nn.Module,
    inputs: ExampleInputs,
    labels: Tensor,
    layers: Sequence[str] | str | None = None,
    *,
    bins: Sequence[int] = SWEEP,
    binning: str = "auto",
    range: tuple[float, float] | None = None,
) -> dict[int, InformationPlane]:
    """The information plane for each number of bins, from one forward pass. Saturation is flagged, not warned of."""
    if isinstance(inputs, list):
        inputs = first_of(inputs, unwrapped(model))
    found = activations(model, inputs, layers)
    return {count: plane(found, labels, inputs, bins=count, binning=binning, range=range) for count in bins}


def plane(
    activations: Sequence[Activation] | Mapping[str, Tensor],
    labels: Tensor,
    inputs: Tensor | tuple[Any, ...] | Mapping[str, Any] | None = None,
    *,
    bins: int = 30,
    binning: str = "auto",
    range: tuple[float, float] | None = None,
    bounds: bool = False,
    sigma: float | None = None,
) -> InformationPlane:
    """``information_plane`` of activations that are there already; does not warn.

    Args:
        activations: of one model, or a dict from name to tensor (N, …).
        labels: (N,).
        inputs: what the model saw, to find equal inputs; None if all are known to differ.
        bins, binning, range, bounds, sigma: as for ``information_plane``.
    """
    if binning not in ("auto", *BINNINGS):
        raise ValueError(f"binning must be 'auto', {', '.join(map(repr, BINNINGS))}, not {binning!r}")
    if range is not None:
        check_range(range)
        if binning != "fixed":
            raise ValueError("range goes with binning='fixed'")
    if sigma is not None and not bounds:
        raise ValueError("sigma is the noise of the bounds: ask for them by bounds=True")
    if isinstance(activations, Mapping):
        activations = [Activation(name, name, d, "given", None) for name, d in activations.items()]
    y = _label_codes(labels)
    x = torch.arange(len(y)) if inputs is None else _input_codes(inputs, len(y))
    h_x = entropy(x)
    rows = []
    for one in activations:
        d = one.tensor.detach()
        way, limits = _binning(one, _extent(one, len(y)), binning, range)
        codes = bin_codes(d, bin_edges(d, bins, way, limits))
        i_xd = mutual_information(codes, x)
        second = None
        if bounds:
            # A constant layer has no width; under any noise it tells nothing.
            rounding = (limits[1] - limits[0]) / (bins * math.sqrt(12)) or 1.0
            second = noise_bounds(d, y, rounding if sigma is None else sigma)
        rows.append(
            PlaneRow(
                name=one.name,
                layer=one.layer,
                kind=one.kind,
                i_xd=i_xd,
                i_dy=mutual_information(codes, y),
                codes=int(codes.max()) + 1,
                bins=int(bins),
                binning=way,
                range=limits,
                saturated=h_x > 0 and i_xd > h_x - 1e-9,
                bounds=second,
            )
        )
    return InformationPlane(tuple(rows), len(y), int(x.max()) + 1, h_x, entropy(y))


def _label_codes(labels: Tensor) -> Tensor:
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


def _input_codes(inputs: Any, n: int) -> Tensor:
    """Which distinct input each sample is; tensors without one entry per sample are shared by all."""
    each = [row_codes(x) for x in input_tensors(*call_arguments(inputs)) if x.dim() and len(x) == n]
    if not each:
        raise ValueError(f"there are {n} labels, but no input has {n} samples")
    return row_codes(torch.stack(each, 1)) if len(each) > 1 else each[0]


def _extent(one: Activation, n: int) -> tuple[float, float]:
    """The least and the largest value; refuses what cannot be binned."""
    d = one.tensor.detach()
    if d.is_complex():
        raise TypeError(f"activation {one.name} is complex: only real values can be binned")
    if not d.numel() or not d.dim() or len(d) != n:
        raise ValueError(
            f"activation {one.name} has shape {tuple(d.shape)}, not one entry for each of {n} labels: leave it out by "
            "layers=, if that is right"
        )
    low, high = (float(end) for end in torch.aminmax(d))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"activation {one.name} (read by {one.layer or 'the model'}) has infinite or NaN values")
    return low, high


def _binning(
    one: Activation, extent: tuple[float, float], binning: str, range: tuple[float, float] | None
) -> tuple[str, tuple[float, float]]:
    """How a layer is binned, and over which range."""
    limits = range or one.range
    if binning == "auto":
        binning = "range" if limits is None else "fixed"
    if binning != "fixed":
        return binning, extent
    if limits is None:
        raise ValueError(
            f"activation {one.name} has no range of its own: give range=(low, high), or use binning='auto'"
        )
    low, high = float(limits[0]), float(limits[1])
    slack, (least, largest) = SLACK * (high - low), extent
    if least < low - slack or largest > high + slack:
        raise ValueError(
            f"activation {one.name} has values from {least:g} to {largest:g}, outside the range ({low:g}, {high:g})"
        )
    return binning, (low, high)


def _cells(row: PlaneRow) -> list[str]:
    bins = f"{row.bins} {row.binning} [{row.range[0]:.3g}, {row.range[1]:.3g}]"
    cells = [row.name, shown(row.layer), row.kind, bins, str(row.codes), f"{row.i_xd:.3f}", f"{row.i_dy:.3f}"]
    if row.bounds:
        pairs = (row.bounds.i_xd, row.bounds.i_dy, row.bounds.i_dy_kde)
        cells += [f"{row.bounds.sigma:.3g}", *(f"{low:.3f} … {high:.3f}" for low, high in pairs)]
    return [*cells, "saturated" if row.saturated else ""]

"""The information plane: mutual information of every layer's activation D with input X and with label Y."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from racecar.inspect.activations import Activation, activations
from racecar.inspect.binning import choose_binning, extent, input_codes, label_codes
from racecar.inspect.mutual_information import (
    BINNINGS,
    NoiseBounds,
    bin_codes,
    bin_edges,
    check_range,
    entropy,
    mutual_information,
    noise_bounds,
)
from racecar.inspect.unwrap import unwrapped
from racecar.support.table import table
from racecar.watch.batches import ExampleInputs, first_of
from racecar.watch.names import shown

SWEEP = (2, 5, 10, 20, 30, 50, 100, 200)
"""Numbers of bins that ``bin_sweep`` tries, to show how far the plane depends on them."""


class SaturationWarning(UserWarning):
    """Warning: I(X;D) equals H(X), because the bins separate all inputs; the number then says nothing of the layer."""


@dataclass(frozen=True)
class PlaneRow:
    """One activation D in the information plane."""

    name: str
    """Name of the activation: "d1", "d2", …"""
    layer: str
    """Qualified name of the layer whose input it is; "output" for the last activation."""
    kind: str
    """The operation whose output it is: "input", "tanh", "relu", …"""
    i_xd: float
    """I(X;D) in bits."""
    i_dy: float
    """I(D;Y) in bits."""
    codes: int
    """Number of distinct codes that the samples have after binning."""
    bins: int
    """Number of bins for each neuron."""
    binning: str
    """How the bins were placed: "fixed", "range" or "mass"."""
    range: tuple[float, float]
    """The range that "fixed" divides into bins; for the others the least and the largest value."""
    saturated: bool
    """Whether I(X;D) equals its ceiling H(X), which is log2 N for N distinct inputs."""
    bounds: NoiseBounds | None
    """Bounds on the information of the activation with noise added, without bins; None if not asked for."""


@dataclass(frozen=True)
class InformationPlane:
    """I(X;D) and I(D;Y) of every activation of one model; iterable over activations, prints as a table."""

    rows: tuple[PlaneRow, ...]
    """One entry for each activation, in the order of the model."""
    samples: int
    """Number of samples."""
    inputs: int
    """Number of distinct inputs among the samples."""
    h_x: float
    """H(X) in bits, the ceiling of I(X;D)."""
    h_y: float
    """H(Y) in bits, the ceiling of I(D;Y)."""

    def __iter__(self) -> Iterator[PlaneRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> PlaneRow:
        return self.rows[i]

    def to_dict(self) -> dict[str, Any]:
        """Everything as a dict for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        head = ["d", "layer", "made by", "bins", "codes", "I(X;D)", "I(D;Y)"]
        if any(row.bounds for row in self.rows):
            head += ["noise σ", "I(X;D+noise)", "I(D+noise;Y)", "KDE"]
        ceilings = (
            f"{self.samples} samples, {self.inputs} distinct inputs; bits; "
            f"ceilings H(X) = {self.h_x:.3f}, H(Y) = {self.h_y:.3f}"
        )
        return f"{table([*head, 'note'], [_cells(row) for row in self.rows])}\n{ceilings}"


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
    """Estimate I(X;D) and I(D;Y) in bits for every activation of a model, on the given samples.

    X is the index of the distinct input (equal inputs are one X), D the activation with every neuron rounded to a bin,
    Y the label. A network is deterministic, so for distinct inputs I(X;D) = H(D): it measures how the bins cluster the
    samples, not the network alone. Compare with ``bin_sweep`` and with the noise bounds before you rely on it.

    Args:
        model: any model that Racecar can plan.
        inputs: as for ``Racecar``: a tensor, a tuple of arguments or a dict of keyword arguments.
        labels: (N,) integers, or any values that tell the classes apart.
        layers: activation names ("d3") or layer-name patterns; None: all.
        bins: number of bins for each neuron.
        binning: "fixed" divides a fixed range into bins of equal width, "range" the span of the layer's values, "mass"
            gives each bin the same number of the layer's values. "auto": "fixed" if the activation function is bounded
            (tanh, sigmoid, softmax, …), else "range". All neurons of a layer share their bins.
        range: (low, high) that "fixed" divides, for all layers; None: that of each activation function.
        bounds: whether to bound I(X;D+noise) and I(D+noise;Y), too; takes time that grows with N².
        sigma: standard deviation of that noise, in units of the activations. None: that of rounding to a bin, the
            layer's range / (bins · √12), so that both estimates have the same resolution.

    Warns:
        SaturationWarning: I(X;D) equals H(X) at activations other than the input.
    """
    if isinstance(inputs, list):
        inputs = first_of(inputs, unwrapped(model))
    ds = activations(model, inputs, layers)
    result = plane(ds, labels, inputs, bins=bins, binning=binning, range=range, bounds=bounds, sigma=sigma)
    if saturated := [row.name for row in result if row.saturated and row.kind != "input"]:
        names = ", ".join(saturated)
        warnings.warn(
            f"I(X;D) reaches its ceiling, {result.h_x:.3f} bits, at {names}: {bins} bins give every input a "
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
    """Estimate the information plane for several numbers of bins, from one forward pass; never warns of saturation.

    Args:
        model, inputs, labels, layers, binning, range: as for ``information_plane``.
        bins: the numbers of bins.

    Returns:
        Number of bins → information plane.
    """
    if isinstance(inputs, list):
        inputs = first_of(inputs, unwrapped(model))
    ds = activations(model, inputs, layers)
    return {count: plane(ds, labels, inputs, bins=count, binning=binning, range=range) for count in bins}


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
    """Estimate the information plane from activations instead of a model; never warns of saturation.

    Args:
        activations: the result of ``activations``, or a dict from name to tensor (N, …).
        labels: (N,) integers, or any values that tell the classes apart.
        inputs: the model's inputs, to find equal ones; None: all inputs are distinct.
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
    y = label_codes(labels)
    x = torch.arange(len(y)) if inputs is None else input_codes(inputs, len(y))
    h_x = entropy(x)
    rows = []
    for activation in activations:
        d = activation.tensor.detach()
        layer_binning, limits = choose_binning(activation, extent(activation, len(y)), binning, range)
        codes = bin_codes(d, bin_edges(d, bins, layer_binning, limits))
        i_xd = mutual_information(codes, x)
        layer_bounds = None
        if bounds:
            # The range of a constant layer is 0; with any noise it has no information.
            rounding = (limits[1] - limits[0]) / (bins * math.sqrt(12)) or 1.0
            layer_bounds = noise_bounds(d, y, rounding if sigma is None else sigma)
        rows.append(
            PlaneRow(
                name=activation.name,
                layer=activation.layer,
                kind=activation.kind,
                i_xd=i_xd,
                i_dy=mutual_information(codes, y),
                codes=int(codes.max()) + 1,
                bins=int(bins),
                binning=layer_binning,
                range=limits,
                saturated=h_x > 0 and i_xd > h_x - 1e-9,
                bounds=layer_bounds,
            )
        )
    return InformationPlane(tuple(rows), len(y), int(x.max()) + 1, h_x, entropy(y))


def _cells(row: PlaneRow) -> list[str]:
    """One line of the printed table."""
    bins = f"{row.bins} {row.binning} [{row.range[0]:.3g}, {row.range[1]:.3g}]"
    cells = [row.name, shown(row.layer), row.kind, bins, str(row.codes), f"{row.i_xd:.3f}", f"{row.i_dy:.3f}"]
    if row.bounds:
        pairs = (row.bounds.i_xd, row.bounds.i_dy, row.bounds.i_dy_kde)
        cells += [f"{row.bounds.sigma:.3g}", *(f"{low:.3f} … {high:.3f}" for low, high in pairs)]
    return [*cells, "saturated" if row.saturated else ""]

"""Matplotlib figures of the measurements in ``racecar.inspect``: one function for each kind of result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from racecar.inspect.information_plane import InformationPlane
from racecar.inspect.invertibility import Invertibility
from racecar.inspect.leakage import Leakage
from racecar.inspect.plasticity import Plasticity
from racecar.inspect.similarity import Similarity
from racecar.inspect.singular_vectors import SingularVectors
from racecar.inspect.style import COLOURS, look, new_figure, styled
from racecar.support.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST = 1e-16
"""The smallest error that is drawn: smaller ones are raised to it, because a logarithmic axis has no 0."""
_NOTE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": "#666666", "ha": "right"}


@styled
def vectors_figure(vectors: SingularVectors, count: int = 16) -> Figure:
    """Draw the first ``count`` singular vectors, as pictures if the layer's inputs are pictures; grey is 0."""
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    count = min(count, len(vectors))
    columns = min(8, count) if vectors.images is not None else min(4, count)
    rows = -(-count // columns)
    figure, axes = new_figure(rows, columns, (1.25 * columns + 0.2, 1.55 * rows + 0.5))
    for i, axis in enumerate(axis for line in axes for axis in line):
        if i >= count:
            axis.set_axis_off()
            continue
        if vectors.images is not None:
            _picture(axis, vectors.images[i], signed=True)
        else:
            axis.plot(vectors.vectors[i].tolist(), color=COLOURS["Ort"], linewidth=0.8)
            axis.set(xticks=[], yticks=[])
        share = "" if vectors.carried is None else f", {float(vectors.carried[i]):.1%}"
        axis.set_title(f"{float(vectors.values[i]):.3g}{share}", fontsize=7)
    legend = "singular value" + ("" if vectors.carried is None else ", share of the data")
    figure.suptitle(f"{vectors.layer or 'the model'}: right singular vectors by {vectors.order} ({legend})", fontsize=9)
    return figure


@styled
def spectrum_figure(vectors: SingularVectors) -> Figure:
    """Draw a layer's singular values by rank and, if known, the share of the data along each vector against them."""
    both = vectors.carried is not None
    figure, (axes,) = new_figure(1, 1 + both, (3.6 * (1 + both), 2.8))
    by_value = vectors.ordered("value")
    rank = range(1, len(vectors) + 1)
    axes[0].plot(rank, by_value.values.tolist(), linestyle="-", markersize=4, **look("RR"))
    axes[0].axhline(1, color="#666666", linewidth=0.8, linestyle="--")
    axes[0].annotate("1: length is kept", (len(vectors), 1), (0, 3), **_NOTE)
    axes[0].set(xlabel="rank", ylabel="singular value", ylim=(0, None))
    axes[0].locator_params(axis="x", integer=True)
    if by_value.carried is not None:
        axes[1].plot(by_value.values.tolist(), by_value.carried.tolist(), linestyle="none", markersize=5, **look("RR"))
        axes[1].axvline(1, color="#666666", linewidth=0.8, linestyle="--")
        axes[1].set(xlabel="singular value", ylabel="share of the data's energy")
    figure.suptitle(f"{vectors.layer or 'the model'}: singular values", fontsize=9)
    return figure


@styled
def similarity_figure(similarities: Mapping[str, Similarity] | Similarity) -> Figure:
    """Draw the principal angles between vectors and data, and the best match of every datum, for each variant."""
    by_variant = _by_variant(similarities)
    results = by_variant.values()
    shared = [name for name in ("ssim", "lpips") if all(getattr(result, name) is not None for result in results)]
    measures = ["cosine", *shared]
    titles = {"cosine": "|cosine| ↑", "ssim": "SSIM ↑", "lpips": "LPIPS ↓"}
    figure, (axes,) = new_figure(1, 1 + len(measures), (2.9 * (1 + len(measures)), 2.8))
    for i, (name, result) in enumerate(by_variant.items()):
        style = look(name or "RR", i)
        degrees = torch.rad2deg(result.angles).tolist()
        axes[0].plot(range(1, len(degrees) + 1), degrees, markersize=5, label=name or None, **style)
        for axis, measure in zip(axes[1:], measures, strict=True):
            best = getattr(result, measure).datum_best.tolist()
            axis.plot(range(1, len(best) + 1), sorted(best), markersize=4, linestyle="none", **style)
    axes[0].set(xlabel="principal angle", ylabel="degrees", ylim=(-3, 93), yticks=range(0, 91, 15))
    for axis, measure in zip(axes[1:], measures, strict=True):
        axis.set(xlabel="datum, sorted", title=f"best match, {titles[measure]}")
    if len(by_variant) > 1:
        axes[0].legend(fontsize=8)
    return figure


@styled
def plane_figure(planes: Mapping[str, InformationPlane] | InformationPlane) -> Figure:
    """Draw the information plane: a line for each variant, from the input (d1) to the output."""
    by_variant = _by_variant(planes)
    figure, ((axis,),) = new_figure(1, 1, (4.6, 3.6))
    for i, (name, plane) in enumerate(by_variant.items()):
        style = look(name or "RR", i)
        x, y = [row.i_xd for row in plane], [row.i_dy for row in plane]
        axis.plot(x, y, linewidth=0.9, markersize=7, label=name or None, **style)
        for row in plane:
            point = (row.i_xd, row.i_dy)
            axis.annotate(row.name, point, (4, 4), textcoords="offset points", fontsize=6.5, color=style["color"])
        saturated = [row for row in plane if row.saturated]
        x, y = [row.i_xd for row in saturated], [row.i_dy for row in saturated]
        axis.scatter(x, y, s=110, facecolors="none", edgecolors="#666666", linewidths=0.8)
    h_x, h_y = (max(getattr(plane, name) for plane in by_variant.values()) for name in ("h_x", "h_y"))
    axis.axvline(h_x, color="#666666", linewidth=0.8, linestyle="--")
    axis.axhline(h_y, color="#666666", linewidth=0.8, linestyle="--")
    axis.set(xlabel="I(X;D) in bits", ylabel="I(D;Y) in bits", xlim=(-0.02 * (h_x or 1), 1.08 * (h_x or 1)))
    axis.set_ylim(-0.02 * (h_y or 1), 1.12 * (h_y or 1))
    axis.set_title("ringed: at the ceiling H(X), where every input has a code of its own", fontsize=7)
    if len(by_variant) > 1:
        axis.legend(fontsize=8)
    return figure


@styled
def sweep_figure(sweep: Mapping[int, InformationPlane]) -> Figure:
    """Draw I(X;D) and I(D;Y) of every layer against the number of bins, to see what depends on the bins alone."""
    if not sweep:
        raise ValueError("there is nothing to draw: the sweep is empty")
    figure, (axes,) = new_figure(1, 2, (7.2, 2.9))
    bins = list(sweep)
    names = [row.name for row in next(iter(sweep.values()))]
    shades = _shades(len(names))
    for axis, field, title in zip(axes, ("i_xd", "i_dy"), ("I(X;D)", "I(D;Y)"), strict=True):
        for i, name in enumerate(names):
            values = [getattr(plane[i], field) for plane in sweep.values()]
            marker = "osP^vDX*ph"[i % 10]
            axis.plot(bins, values, marker=marker, markersize=4, linewidth=0.9, color=shades[i], label=name)
        axis.set(xscale="log", xlabel="bins", ylabel=f"{title} in bits")
    axes[1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


@styled
def invertibility_figure(results: Mapping[str, Invertibility] | Invertibility) -> Figure:
    """Draw the relative error of every d'_m, once for the reverse pass from the output, once for each layer alone."""
    by_variant = _by_variant(results)
    first = next(iter(by_variant.values()))
    figure, (axes,) = new_figure(1, 2, (7.2, 2.9))
    for axis, field in zip(axes, ("way", "layerwise"), strict=True):
        for i, (name, result) in enumerate(by_variant.items()):
            errors = [(m, getattr(depth, field)) for m, depth in enumerate(result, start=1)]
            points = [(m, max(error, LEAST)) for m, error in errors if error is not None]
            if points:
                axis.plot(*zip(*points, strict=True), linewidth=0.9, markersize=5, label=name, **look(name or "RR", i))
        axis.axhline(1, color="#666666", linewidth=0.8, linestyle="--")
        axis.set(xlabel="m", yscale="log")
        if len(first) <= 12:
            axis.set_xticks(range(1, len(first) + 1), [depth.name for depth in first])
    axes[0].set(title=f"the reverse pass from the output ({first.mode})", ylabel="Σ(d−d')² / Σd²")
    axes[1].set(title="each layer from its own output")
    axes[1].annotate("1: no better than zeros", (len(first), 1), (0, 3), **_NOTE)
    if len(by_variant) > 1:
        axes[1].legend(fontsize=8)
    return figure


@styled
def rebuilt_figure(result: Invertibility, count: int = 6, depths: int = 12) -> Figure:
    """Draw input pictures and, below each, the same picture rebuilt from deeper and deeper activations.

    Args:
        result: of inputs that are pictures.
        count: most pictures, side by side.
        depths: most activations to rebuild from, one in each row.
    """
    if not result.pictures:
        raise ValueError(f"the inputs are no pictures (N, 1 or 3, H, W): they have shape {tuple(result.inputs.shape)}")
    if count < 1 or depths < 1:
        raise ValueError("count and depths must be at least 1")
    names = _spread(list(result.rebuilt), depths)
    rows: dict[str, Tensor] = {"input": result.inputs} | {f"from {name}": result.rebuilt[name] for name in names}
    count = min(count, len(result.inputs))
    low, high = float(result.inputs.min()), float(result.inputs.max())
    figure, axes = new_figure(len(rows), count, (1.05 * count + 0.6, 1.05 * len(rows) + 0.4))
    for line, (name, pictures) in zip(axes, rows.items(), strict=True):
        for axis, picture in zip(line, pictures, strict=False):
            _picture(axis, picture, limits=(low, high))
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    return figure


@styled
def leakage_figure(leakages: Mapping[str, Leakage] | Leakage) -> Figure:
    """Draw how much of the input each activation reveals; the dashed line is the best constant image."""
    by_variant = _by_variant(leakages)
    first = next(iter(by_variant.values()))
    panels: list[tuple[str, str, float | None]] = [("adjusted", "share of the input's variation", 0.0)]
    if first.constant_psnr is not None:
        panels += [("psnr", "PSNR in dB", first.constant_psnr), ("ssim", "SSIM", first.constant_ssim)]
    names = sorted({leak.name for leaks in by_variant.values() for leak in leaks}, key=lambda name: int(name[1:]))
    figure, (axes,) = new_figure(1, len(panels), (3.0 * len(panels) + 0.6, 2.8))
    for axis, (field, title, constant) in zip(axes, panels, strict=True):
        for i, (name, leaks) in enumerate(by_variant.items()):
            values = [getattr(leak, field) for leak in leaks]
            positions = [names.index(leak.name) for leak in leaks]
            axis.plot(positions, values, linewidth=0.9, markersize=5, label=name or None, **look(name or "RR", i))
        if constant is not None:
            axis.axhline(constant, color="#666666", linewidth=0.8, linestyle="--")
        axis.set(title=title, xlabel="rebuilt from")
        axis.set_xticks(range(len(names)), names)
    axes[0].set_ylim(-0.03, 1.03)
    if len(by_variant) > 1:
        axes[0].legend(fontsize=8)
    return figure


@styled
def plasticity_figure(history: Sequence[tuple[int, Plasticity]]) -> Figure:
    """Draw each layer's plasticity against the training step: dead units, effective rank as a share of the units, gain
    along the data (the median, and a band from the low to the high gain) and reverse error.

    Args:
        history: (step, measurement), as ``PlasticityLog.history``.
    """
    if not history:
        raise ValueError("there is nothing to draw: the history is empty")
    steps = [step for step, _ in history]
    titles = ("dead units, %", "effective rank, % of units", "gain along the data", "reverse error")
    figure, (axes,) = new_figure(1, 4, (11.0, 2.8))
    layers = list(zip(*(measured.layers for _, measured in history), strict=True))
    for i, (over_time, colour) in enumerate(zip(layers, _shades(len(layers)), strict=True)):
        style = {**look("", i), "color": colour, "markersize": 4, "linewidth": 0.9, "label": over_time[0].layer}
        axes[0].plot(steps, [100 * layer.dead for layer in over_time], **style)
        axes[1].plot(steps, [100 * layer.rank / layer.units for layer in over_time], **style)
        low, middle, high, error = (
            [math.nan if (value := getattr(layer, name)) is None else value for layer in over_time]
            for name in ("low", "middle", "high", "error")
        )
        axes[2].plot(steps, middle, **style)
        axes[2].fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
        axes[3].plot(steps, error, **style)
    axes[2].axhline(1, color="#666666", linewidth=0.8, linestyle="--")
    axes[3].set_yscale("symlog", linthresh=1.0)
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="step")
        axis.set_ylim(bottom=0)
    axes[0].legend(fontsize=7)
    return figure


T = TypeVar("T")


def _by_variant(results: Mapping[str, T] | T) -> Mapping[str, T]:
    """Results by the name of their variant; a single result gets the name ""."""
    by_variant: Mapping[str, T] = results if isinstance(results, Mapping) else {"": results}
    if not by_variant:
        raise ValueError("there is nothing to draw: the mapping is empty")
    return by_variant


def _shades(count: int) -> list[Any]:
    """Colours from dark to light for layers in order, which also differ in grey print."""
    shades = need("matplotlib", "inspect").colormaps["viridis"]
    return [shades(0.9 * i / max(1, count - 1)) for i in range(count)]


def _spread(names: Sequence[str], most: int) -> list[str]:
    """At most ``most`` names, evenly spaced, with the first and the last."""
    if len(names) <= most:
        return list(names)
    return [names[round(i * (len(names) - 1) / max(1, most - 1))] for i in range(most)]


def _picture(axis: Axes, picture: Tensor, signed: bool = False, limits: tuple[float, float] | None = None) -> None:
    """Draw one picture (C, H, W); if C is neither 1 nor 3, its strongest channel.

    Args:
        axis: where to draw it.
        picture: its values.
        signed: whether 0 is drawn as middle grey.
        limits: values of black and white; None: the least and the largest value.
    """
    picture = picture.detach().to("cpu", torch.float64)
    if picture.shape[0] not in (1, 3):
        picture = picture[picture.square().sum((1, 2)).argmax()].unsqueeze(0)
    if signed:
        size = float(picture.abs().max()) or 1.0
        limits = (-size, size)
    low, high = limits or (float(picture.min()), float(picture.max()))
    picture = ((picture - low) / ((high - low) or 1.0)).clamp(0, 1)
    grey = picture.shape[0] == 1
    pixels = picture[0].numpy() if grey else picture.movedim(0, -1).numpy()
    axis.imshow(pixels, cmap="gray" if grey else None, vmin=0, vmax=1, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.grid(False)

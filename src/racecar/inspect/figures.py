"""Figures of what was found in a network: one function for each, returning a matplotlib figure."""

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
"""Errors below it are drawn there, because a logarithmic axis has no 0."""
_NOTE: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": "#666666", "ha": "right"}


@styled
def vectors_figure(found: SingularVectors, count: int = 16) -> Figure:
    """The first singular vectors, as pictures where the layer sees pictures; grey is 0."""
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    count = min(count, len(found))
    columns = min(8, count) if found.images is not None else min(4, count)
    rows = -(-count // columns)
    figure, axes = new_figure(rows, columns, (1.25 * columns + 0.2, 1.55 * rows + 0.5))
    for i, axis in enumerate(axis for line in axes for axis in line):
        if i >= count:
            axis.set_axis_off()
            continue
        if found.images is not None:
            _picture(axis, found.images[i], signed=True)
        else:
            axis.plot(found.vectors[i].tolist(), color=COLOURS["Ort"], linewidth=0.8)
            axis.set(xticks=[], yticks=[])
        share = "" if found.carried is None else f", {float(found.carried[i]):.1%}"
        axis.set_title(f"{float(found.values[i]):.3g}{share}", fontsize=7)
    what = "singular value" + ("" if found.carried is None else ", share of the data")
    figure.suptitle(f"{found.layer or 'the model'}: right singular vectors by {found.order} ({what})", fontsize=9)
    return figure


@styled
def spectrum_figure(found: SingularVectors) -> Figure:
    """Singular values, and how much of the data each vector carries: racecar's features sit near 1."""
    both = found.carried is not None
    figure, (axes,) = new_figure(1, 1 + both, (3.6 * (1 + both), 2.8))
    by_value = found.ordered("value")
    rank = range(1, len(found) + 1)
    axes[0].plot(rank, by_value.values.tolist(), linestyle="-", markersize=4, **look("RR"))
    axes[0].axhline(1, color="#666666", linewidth=0.8, linestyle="--")
    axes[0].annotate("1: length is kept", (len(found), 1), (0, 3), **_NOTE)
    axes[0].set(xlabel="rank", ylabel="singular value", ylim=(0, None))
    axes[0].locator_params(axis="x", integer=True)
    if by_value.carried is not None:
        axes[1].plot(by_value.values.tolist(), by_value.carried.tolist(), linestyle="none", markersize=5, **look("RR"))
        axes[1].axvline(1, color="#666666", linewidth=0.8, linestyle="--")
        axes[1].set(xlabel="singular value", ylabel="share of the data's energy")
    figure.suptitle(f"{found.layer or 'the model'}: singular values", fontsize=9)
    return figure


@styled
def similarity_figure(found: Mapping[str, Similarity] | Similarity) -> Figure:
    """Principal angles to the data, and the best match of every datum; one colour for each variant."""
    several = _several(found)
    shared = [name for name in ("ssim", "lpips") if all(getattr(one, name) is not None for one in several.values())]
    measures = ["cosine", *shared]
    titles = {"cosine": "|cosine| ↑", "ssim": "SSIM ↑", "lpips": "LPIPS ↓"}
    figure, (axes,) = new_figure(1, 1 + len(measures), (2.9 * (1 + len(measures)), 2.8))
    for i, (name, one) in enumerate(several.items()):
        style = look(name or "RR", i)
        degrees = torch.rad2deg(one.angles).tolist()
        axes[0].plot(range(1, len(degrees) + 1), degrees, markersize=5, label=name or None, **style)
        for axis, measure in zip(axes[1:], measures, strict=True):
            best = getattr(one, measure).datum_best.tolist()
            axis.plot(range(1, len(best) + 1), sorted(best), markersize=4, linestyle="none", **style)
    axes[0].set(xlabel="principal angle", ylabel="degrees", ylim=(-3, 93), yticks=range(0, 91, 15))
    for axis, measure in zip(axes[1:], measures, strict=True):
        axis.set(xlabel="datum, sorted", title=f"best match, {titles[measure]}")
    if len(several) > 1:
        axes[0].legend(fontsize=8)
    return figure


@styled
def plane_figure(planes: Mapping[str, InformationPlane] | InformationPlane) -> Figure:
    """The information plane: one line for each variant, from the input (d1) to the output; numbers are the layers."""
    several = _several(planes)
    figure, ((axis,),) = new_figure(1, 1, (4.6, 3.6))
    for i, (name, plane) in enumerate(several.items()):
        style = look(name or "RR", i)
        x, y = [row.i_xd for row in plane], [row.i_dy for row in plane]
        axis.plot(x, y, linewidth=0.9, markersize=7, label=name or None, **style)
        for row in plane:
            place = (row.i_xd, row.i_dy)
            axis.annotate(row.name, place, (4, 4), textcoords="offset points", fontsize=6.5, color=style["color"])
        full = [row for row in plane if row.saturated]
        x, y = [row.i_xd for row in full], [row.i_dy for row in full]
        axis.scatter(x, y, s=110, facecolors="none", edgecolors="#666666", linewidths=0.8)
    h_x, h_y = max(one.h_x for one in several.values()), max(one.h_y for one in several.values())
    axis.axvline(h_x, color="#666666", linewidth=0.8, linestyle="--")
    axis.axhline(h_y, color="#666666", linewidth=0.8, linestyle="--")
    axis.set(xlabel="I(X;D) in bits", ylabel="I(D;Y) in bits", xlim=(-0.02 * (h_x or 1), 1.08 * (h_x or 1)))
    axis.set_ylim(-0.02 * (h_y or 1), 1.12 * (h_y or 1))
    axis.set_title("ringed: at the ceiling H(X), where every input has a code of its own", fontsize=7)
    if len(several) > 1:
        axis.legend(fontsize=8)
    return figure


@styled
def sweep_figure(sweep: Mapping[int, InformationPlane]) -> Figure:
    """I(X;D) and I(D;Y) of every layer over the number of bins: what depends on the bins is not the network's."""
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
def invertibility_figure(found: Mapping[str, Invertibility] | Invertibility) -> Figure:
    """Relative error of the reverse pass into every d_m: along the whole way, and of each layer alone."""
    several = _several(found)
    first = next(iter(several.values()))
    figure, (axes,) = new_figure(1, 2, (7.2, 2.9))
    for axis, field in zip(axes, ("way", "layerwise"), strict=True):
        for i, (name, one) in enumerate(several.items()):
            errors = [(j + 1, getattr(depth, field)) for j, depth in enumerate(one)]
            points = [(j, max(error, LEAST)) for j, error in errors if error is not None]
            if points:
                axis.plot(*zip(*points, strict=True), linewidth=0.9, markersize=5, label=name, **look(name or "RR", i))
        axis.axhline(1, color="#666666", linewidth=0.8, linestyle="--")
        axis.set(xlabel="m", yscale="log")
        if len(first) <= 12:
            axis.set_xticks(range(1, len(first) + 1), [depth.name for depth in first])
    axes[0].set(title=f"the reverse pass from the output ({first.mode})", ylabel="Σ(d−d')² / Σd²")
    axes[1].set(title="each layer from its own output")
    axes[1].annotate("1: no better than zeros", (len(first), 1), (0, 3), **_NOTE)
    if len(several) > 1:
        axes[1].legend(fontsize=8)
    return figure


@styled
def rebuilt_figure(found: Invertibility, count: int = 6, depths: int = 12) -> Figure:
    """Inputs, and below them what the reverse pass from each depth makes of them."""
    if not found.pictures:
        raise ValueError(f"the inputs are no pictures (N, 1 or 3, H, W): they have shape {tuple(found.inputs.shape)}")
    if count < 1 or depths < 1:
        raise ValueError("count and depths must be at least 1")
    chosen = _spread(list(found.rebuilt), depths)
    rows: dict[str, Tensor] = {"input": found.inputs} | {f"from {name}": found.rebuilt[name] for name in chosen}
    count = min(count, len(found.inputs))
    low, high = float(found.inputs.min()), float(found.inputs.max())
    figure, axes = new_figure(len(rows), count, (1.05 * count + 0.6, 1.05 * len(rows) + 0.4))
    for line, (name, pictures) in zip(axes, rows.items(), strict=True):
        for axis, picture in zip(line, pictures, strict=False):
            _picture(axis, picture, limits=(low, high))
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    return figure


@styled
def leakage_figure(found: Mapping[str, Leakage] | Leakage) -> Figure:
    """How much of the input each depth gives back; the dashed line is the best constant image."""
    several = _several(found)
    first = next(iter(several.values()))
    panels: list[tuple[str, str, float | None]] = [("adjusted", "share of the input's variation", 0.0)]
    if first.constant_psnr is not None:
        panels += [("psnr", "PSNR in dB", first.constant_psnr), ("ssim", "SSIM", first.constant_ssim)]
    order = sorted({leak.name for one in several.values() for leak in one}, key=lambda name: int(name[1:]))
    figure, (axes,) = new_figure(1, len(panels), (3.0 * len(panels) + 0.6, 2.8))
    for axis, (field, title, constant) in zip(axes, panels, strict=True):
        for i, (name, one) in enumerate(several.items()):
            values = [getattr(leak, field) for leak in one]
            places = [order.index(leak.name) for leak in one]
            axis.plot(places, values, linewidth=0.9, markersize=5, label=name or None, **look(name or "RR", i))
        if constant is not None:
            axis.axhline(constant, color="#666666", linewidth=0.8, linestyle="--")
        axis.set(title=title, xlabel="rebuilt from")
        axis.set_xticks(range(len(order)), order)
    axes[0].set_ylim(-0.03, 1.03)
    if len(several) > 1:
        axes[0].legend(fontsize=8)
    return figure


@styled
def plasticity_figure(history: Sequence[tuple[int, Plasticity]]) -> Figure:
    """Over the steps of a training, for each layer: dead units, effective rank as a share of the units, gain along the
    data (the median, and a band from a tenth to nine tenths of the energy) and reverse error."""
    if not history:
        raise ValueError("there is nothing to draw: the history is empty")
    steps = [step for step, _ in history]
    titles = ("dead units, %", "effective rank, % of units", "gain along the data", "reverse error")
    figure, (axes,) = new_figure(1, 4, (11.0, 2.8))
    layers = list(zip(*(found.layers for _, found in history), strict=True))
    for i, (over_time, colour) in enumerate(zip(layers, _shades(len(layers)), strict=True)):
        style = {**look("", i), "color": colour, "markersize": 4, "linewidth": 0.9, "label": over_time[0].layer}
        axes[0].plot(steps, [100 * one.dead for one in over_time], **style)
        axes[1].plot(steps, [100 * one.rank / one.units for one in over_time], **style)
        low, middle, high, error = (
            [math.nan if (value := getattr(one, name)) is None else value for one in over_time]
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


def _several(found: Mapping[str, T] | T) -> Mapping[str, T]:
    """One result, or several by variant."""
    several: Mapping[str, T] = found if isinstance(found, Mapping) else {"": found}
    if not several:
        raise ValueError("there is nothing to draw: the mapping is empty")
    return several


def _shades(count: int) -> list[Any]:
    """Shades from dark to light for layers in order, told apart in grey print as well."""
    shades = need("matplotlib", "inspect").colormaps["viridis"]
    return [shades(0.9 * i / max(1, count - 1)) for i in range(count)]


def _spread(names: Sequence[str], most: int) -> list[str]:
    """All, or as many as fit, the first and the last among them."""
    if len(names) <= most:
        return list(names)
    return [names[round(i * (len(names) - 1) / max(1, most - 1))] for i in range(most)]


def _picture(axis: Axes, picture: Tensor, signed: bool = False, limits: tuple[float, float] | None = None) -> None:
    """One picture (C, H, W); of other channel counts than 1 and 3 the strongest channel."""
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

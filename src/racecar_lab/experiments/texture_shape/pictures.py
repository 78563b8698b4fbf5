"""Figures of texture-shape with pictures: the nets' confidences, and pictures that the reverse pass rebuilds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.datasets.texture_shape import CLASSES
from racecar_lab.experiments.texture_shape.rows import mean_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from racecar_lab.running.run import Run

Rows = Mapping[str, Sequence["Run"]]


@styled
def confidence_figure(nets: Rows) -> Figure:
    """Draw pictures, each with bars of the nets' probabilities for its shape's class and its texture's, mean over the
    seeds."""
    first = next(iter(nets.values()))[0]
    pictures, classes = first.arrays["d1"], first.arrays["classes"].tolist()
    figure, axes = new_figure(len(pictures), 2, (WIDTH, 1.15 * len(pictures) + 0.5))
    descriptions = []
    for i, ((left, right), (shape, texture)) in enumerate(zip(axes, classes, strict=True)):
        _show(left, pictures[i])
        left.set_title(f"{CLASSES[shape]} in {CLASSES[texture]}", fontsize=SMALL)
        texts = []
        for y, (name, runs) in enumerate(nets.items()):
            percent = [
                100 * mean(float(run.arrays["confidences"][i, label]) for run in runs) for label in (shape, texture)
            ]
            colour = look(name)["color"]
            right.barh([y - 0.18, y + 0.18], percent, 0.34, color=[colour, "white"], edgecolor=colour)
            texts.append(f"{name} {percent[0]:.0f} and {percent[1]:.0f} %")
        right.set_yticks(range(len(nets)), list(nets), fontsize=SMALL)
        right.tick_params(axis="x", labelsize=SMALL)
        right.set(xlim=(0, 100), ylim=(len(nets) - 0.5, -0.5))
        right.grid(False, axis="y")
        descriptions.append(f"{CLASSES[shape]} in {CLASSES[texture]}, shape and texture: {', '.join(texts)}")
    axes[-1][1].set_xlabel("confidence in %\n(filled: shape, hollow: texture)", fontsize=SMALL)
    figure.set_label("; ".join(descriptions))
    return figure


@styled
def rebuilt_figure(nets: Rows) -> Figure:
    """Draw stylised pictures above a row of rebuilt ones for each net, from its first seed."""
    runs = {name: min(members, key=lambda run: run.seed) for name, members in nets.items()}
    inputs = next(iter(runs.values())).arrays["d1"]
    lines = [("d1", "black", inputs)]
    lines += [(name, look(name)["color"], run.arrays["rebuilt"]) for name, run in runs.items()]
    figure, axes = new_figure(len(lines), len(inputs), (WIDTH, 0.85 * len(lines)))
    for line, (name, colour, pictures) in zip(axes, lines, strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            _show(axis, picture)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8, color=colour)
    correlations = "; ".join(_correlations(name, members) for name, members in nets.items())
    figure.set_label(f"correlation with the picture: {correlations}")
    return figure


def _correlations(name: str, runs: Sequence[Run]) -> str:
    """Text with a net's name and the mean correlations of rebuilt pictures with true ones, of coarse parts and of
    texture."""
    estimates = [mean_of(runs, metric) for metric in ("rebuilt_shape", "rebuilt_texture")]
    shape, texture = ("unknown" if estimate is None else f"{estimate.mean:.2f}" for estimate in estimates)
    return f"{name} coarse parts {shape}, texture {texture}"


def _show(axis: Axes, picture: Tensor) -> None:
    """Draw a picture in colour, uint8 (3, H, W)."""
    axis.imshow(picture.permute(1, 2, 0).numpy(), interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)

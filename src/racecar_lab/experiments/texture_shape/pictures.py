"""Pictures of texture-shape: what nets say of some, and what the reverse pass rebuilds of them."""

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
    """Beside each picture, bars of what nets give its shape's class and its texture's, mean over the seeds."""
    first = next(iter(nets.values()))[0]
    pictures, classes = first.arrays["d1"], first.arrays["classes"].tolist()
    figure, axes = new_figure(len(pictures), 2, (WIDTH, 1.15 * len(pictures) + 0.5))
    said = []
    for i, ((left, right), (shape, texture)) in enumerate(zip(axes, classes, strict=True)):
        _show(left, pictures[i])
        left.set_title(f"{CLASSES[shape]} in {CLASSES[texture]}", fontsize=SMALL)
        told = []
        for y, (name, runs) in enumerate(nets.items()):
            given = [mean(float(run.arrays["confidences"][i, label]) for run in runs) for label in (shape, texture)]
            colour = look(name)["color"]
            right.barh(
                [y - 0.18, y + 0.18], [100 * one for one in given], 0.34, color=[colour, "white"], edgecolor=colour
            )
            told.append(f"{name} {100 * given[0]:.0f} and {100 * given[1]:.0f} %")
        right.set_yticks(range(len(nets)), list(nets), fontsize=SMALL)
        right.tick_params(axis="x", labelsize=SMALL)
        right.set(xlim=(0, 100), ylim=(len(nets) - 0.5, -0.5))
        right.grid(False, axis="y")
        said.append(f"{CLASSES[shape]} in {CLASSES[texture]}, shape and texture: {', '.join(told)}")
    axes[-1][1].set_xlabel("confidence in %\n(filled: shape, hollow: texture)", fontsize=SMALL)
    figure.set_label("; ".join(said))
    return figure


@styled
def rebuilt_figure(nets: Rows) -> Figure:
    """Stylised pictures, and a row for each net, of the first seed of the first fold."""
    runs = {name: min(own, key=lambda run: run.seed) for name, own in nets.items()}
    truth = next(iter(runs.values())).arrays["d1"]
    lines = [("d1", "black", truth)]
    lines += [(name, look(name)["color"], run.arrays["rebuilt"]) for name, run in runs.items()]
    figure, axes = new_figure(len(lines), len(truth), (WIDTH, 0.85 * len(lines)))
    for line, (name, colour, pictures) in zip(axes, lines, strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            _show(axis, picture)
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8, color=colour)
    figure.set_label(f"correlation with the picture: {'; '.join(_told(name, own) for name, own in nets.items())}")
    return figure


def _told(name: str, runs: Sequence[Run]) -> str:
    parts = [mean_of(runs, f"rebuilt_{what}") for what in ("shape", "texture")]
    said = ["unknown" if one is None else f"{one.mean:.2f}" for one in parts]
    return f"{name} coarse parts {said[0]}, texture {said[1]}"


def _show(axis: Axes, picture: Tensor) -> None:
    """In colour, bytes (3, H, W)."""
    axis.imshow(picture.permute(1, 2, 0).numpy(), interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)

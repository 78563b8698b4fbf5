"""What networks of the experiments look for and what they rebuild, as pictures; beside them what it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.report.groups import by_variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

ACROSS = 8
"""Pictures beside each other, at most."""
LOOKS = 5
"""Moments of a training that are shown."""


@styled
def vectors_figure(runs: Sequence[Run], what: str, seeds: int = 2, count: int = 4) -> Figure:
    """For each seed the features, and below them for each variant the singular vectors that carry most of the data.
    Where there are few vectors, seeds stand beside each other."""
    groups = by_variant(runs)
    seen = sorted({run.seed for run in runs})[:seeds]
    lines, width = 1 + len(groups), max(2, min(count, max(len(run.arrays["vectors"]) for run in runs)))
    beside = min(len(seen), max(1, count // width))
    rows = lines * -(-len(seen) // beside)
    figure, axes = new_figure(rows, width * beside, (WIDTH, 0.95 * rows))
    for axis in (axis for line in axes for axis in line):
        axis.set_axis_off()
    for i, seed in enumerate(seen):
        top, left = lines * (i // beside), width * (i % beside)
        first, *others = [line[left : left + width] for line in axes[top : top + lines]]
        features = next(run for run in runs if run.seed == seed).arrays["features"]
        for axis, picture in zip(first, features, strict=False):
            show_picture(axis, picture[0])
        first[0].set_title(f"seed {seed}", fontsize=SMALL, pad=2)
        name_row(first[0], what if left == 0 else "", "black")
        for line, (name, some) in zip(others, groups.items(), strict=True):
            run = next((run for run in some if run.seed == seed), None)
            if run is None:
                continue
            shares = run.arrays["shares"]
            for axis, vector, share in zip(line, run.arrays["vectors"], shares, strict=False):
                size = float(vector.abs().max()) or 1.0
                show_picture(axis, vector[0] * vector[0].sum().sign(), (-size, size))
                axis.set_title(f"{float(share):.0%}", fontsize=SMALL, pad=1.5)
            name_row(line[0], name if left == 0 else "", look(run.variant)["color"])
    carried = {name: mean(float(run.arrays["shares"][:count].sum()) for run in some) for name, some in groups.items()}
    said = ", ".join(f"{name} {share:.0%}" for name, share in carried.items())
    figure.set_label(f"share of the data that the {width} leading vectors carry: {said}")
    return figure


@styled
def strip_figure(runs: Sequence[Run], truth: Mapping[int, Tensor]) -> Figure:
    """A picture, and beside it what the reverse pass makes of it from the start of training to its end; of the first
    seed that most variants have.

    Args:
        runs: with "rebuilt", pictures of each moment.
        truth: seed → the first picture (1, H, W) itself, with values up to 255.
    """
    groups = of_one_seed(runs)
    moments = max(len(run.arrays["rebuilt"]) for run in groups.values())
    chosen = sorted({round(i * (moments - 1) / (LOOKS - 1)) for i in range(LOOKS)})
    figure, axes = new_figure(len(groups), 1 + len(chosen), (WIDTH, 0.3 + 0.72 * len(groups)))
    said = []
    for line, (name, run) in zip(axes, groups.items(), strict=True):
        picture, rebuilt = truth[run.seed][0], run.arrays["rebuilt"]
        show_picture(line[0], picture, (0.0, 255.0))
        name_row(line[0], name, look(run.variant)["color"])
        for axis, moment in zip(line[1:], chosen, strict=True):
            axis.set_axis_off()
            if moment < len(rebuilt):
                show_picture(axis, rebuilt[moment, 0, 0], (0.0, 255.0))
        likeness = torch.cosine_similarity(picture.flatten(), rebuilt[-1, 0, 0].flatten(), dim=0)
        said.append(f"{name} {float(likeness):.2f}")
    for axis, text in zip(axes[0], ["d1", *_moments(chosen, moments)], strict=True):
        axis.set_title(text, fontsize=SMALL, pad=2)
    figure.set_label(f"cosine between the picture and what is made of it at the end: {', '.join(said)}")
    return figure


def _moments(chosen: Sequence[int], moments: int) -> list[str]:
    """The start, the end, and which part of the training is over between them."""
    names = {0: "start", moments - 1: "end"}
    return [names.get(one, f"{100 * one / max(1, moments - 1):.0f} %") for one in chosen]


@styled
def rebuilt_figure(runs: Sequence[Run]) -> Figure:
    """Pictures d1, and a row for each variant, what the reverse pass makes of them; of the seed that most have."""
    groups = of_one_seed(runs)
    truth = next(run.arrays["d1"] for run in groups.values() if "d1" in run.arrays)[:ACROSS]
    rows = [("d1", "black", truth)]
    rows += [(name, look(run.variant)["color"], run.arrays["rebuilt"]) for name, run in groups.items()]
    figure, axes = new_figure(len(rows), len(truth), (WIDTH, 0.48 * len(rows)))
    for line, (name, colour, pictures) in zip(axes, rows, strict=True):
        for axis, picture in zip(line, pictures, strict=False):
            show_picture(axis, picture[0], (0.0, 1.0))
        name_row(line[0], name, colour)
    figure.set_label(_likeness(runs))
    return figure


def _likeness(runs: Sequence[Run]) -> str:
    """Of d1 and what is made of it, mean over all seeds."""
    known = {
        name: [run.metrics["ssim"] for run in some if run.metrics.get("ssim") is not None]
        for name, some in by_variant(runs).items()
    }
    said = [f"{name} {mean(values):.2f}" for name, values in known.items() if values]
    return f"mean likeness (SSIM) of the picture and what is made of it: {', '.join(said)}" if said else ""


def of_one_seed(runs: Sequence[Run]) -> Mapping[str, Run]:
    """The run of each variant, of the seed that most have."""
    seeds = sorted(run.seed for run in runs)
    seed = max(seeds, key=seeds.count)
    return {name: run for name, some in by_variant(runs).items() for run in some if run.seed == seed}


def name_row(axis: Axes, text: str, colour: str) -> None:
    """To the left of a picture."""
    axis.set_axis_on()
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    axis.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=8, color=colour)


def show_picture(axis: Axes, picture: Tensor, limits: tuple[float, float] | None = None) -> None:
    low, high = limits or (0.0, float(picture.abs().max()) or 1.0)
    axis.imshow(picture.numpy(), cmap="gray", vmin=low, vmax=high, interpolation="nearest")
    axis.set_axis_off()

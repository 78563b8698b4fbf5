"""Figures of singular vectors and rebuilt inputs as pictures, next to the pictures that they should resemble."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.datasets import peaks
from racecar_lab.experiments.paper_figures import accuracy_figure, accuracy_title, chosen, having
from racecar_lab.report.groups import by_setting, by_variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

ACROSS = 8
"""Largest number of pictures in a row of a figure."""
LOOKS = 5
"""Number of moments of a training from which a figure shows rebuilt pictures."""


def digits_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure of the experiment digits: singular vectors, and the first digit as the reverse pass rebuilds
    it."""
    figures = {}
    for setting, members in by_setting(runs).items():
        if having_vectors := having(members, "vectors"):
            title = f"The two digits, and the singular vectors that carry most of them{setting}"
            figures[title] = vectors_figure(having_vectors, "digits")
        if having_rebuilt := having(members, "rebuilt"):
            title = f"The first digit (d1), and what the reverse pass makes of it during training{setting}"
            first_digits = {run.seed: run.arrays["features"][0] for run in having(members, "features")}
            figures[title] = strip_figure(having_rebuilt, first_digits)
    return figures


def peaks_figures(runs: Sequence[Run], nets: Mapping[str, str]) -> dict[str, Figure]:
    """Title → figure of the experiment peaks, for each network: singular vectors, and a picture as the reverse pass
    rebuilds it.

    Args:
        runs: runs of all networks.
        nets: name of a network → its description.
    """
    figures = {}
    for net, description in nets.items():
        for setting, members in by_setting([run for run in runs if run.config["nets"] == [net]]).items():
            if having_vectors := having(members, "vectors"):
                title = f"Singular vectors that carry most of the data: {description}{setting}"
                figures[title] = vectors_figure(having_vectors, "class means")
            if having_rebuilt := having(members, "rebuilt"):
                title = "A picture (d1), and what the reverse pass makes of it during training"
                truth = {run.seed: peaks.load(run.seed)[0][0] for run in having_rebuilt}
                figures[f"{title}: {description}{setting}"] = strip_figure(having_rebuilt, truth)
    return figures


def mnist_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure of the experiment mnist: pictures as the reverse pass rebuilds them, and accuracies."""
    figures = {}
    for setting, members in by_setting(chosen(runs)).items():
        if pictured := having(members, "rebuilt"):
            figures[f"d1 and, below, what the reverse pass makes of it{setting}"] = rebuilt_figure(pictured)
        if measured := [run for run in members if "test_accuracy" in run.metrics]:
            figures[f"{accuracy_title(measured)}{setting}"] = accuracy_figure(measured)
    return figures


@styled
def vectors_figure(runs: Sequence[Run], features_name: str, seeds: int = 2, count: int = 4) -> Figure:
    """Draw for each seed the features, pictures that the first layer should have learned, and below them for each
    variant the singular vectors of that layer that carry most of the data. If there are few vectors, seeds are shown
    next to each other.

    Args:
        runs: with the arrays "vectors", "shares" and "features".
        features_name: label of the row of features.
        seeds: number of seeds that are shown, at most.
        count: number of vectors that are shown, at most.
    """
    groups = by_variant(runs)
    shown_seeds = sorted({run.seed for run in runs})[:seeds]
    lines, width = 1 + len(groups), max(2, min(count, max(len(run.arrays["vectors"]) for run in runs)))
    across = min(len(shown_seeds), max(1, count // width))
    rows = lines * math.ceil(len(shown_seeds) / across)
    figure, axes = new_figure(rows, width * across, (WIDTH, 0.95 * rows))
    for axis in (axis for line in axes for axis in line):
        axis.set_axis_off()
    for i, seed in enumerate(shown_seeds):
        top, column = lines * (i // across), width * (i % across)
        features_row, *variant_rows = [line[column : column + width] for line in axes[top : top + lines]]
        features = next(run for run in runs if run.seed == seed).arrays["features"]
        for axis, picture in zip(features_row, features, strict=False):
            show_picture(axis, picture[0])
        features_row[0].set_title(f"seed {seed}", fontsize=SMALL, pad=2)
        name_row(features_row[0], features_name if column == 0 else "", "black")
        for line, (name, members) in zip(variant_rows, groups.items(), strict=True):
            run = next((run for run in members if run.seed == seed), None)
            if run is None:
                continue
            shares = run.arrays["shares"]
            for axis, vector, share in zip(line, run.arrays["vectors"], shares, strict=False):
                size = float(vector.abs().max()) or 1.0
                show_picture(axis, vector[0] * vector[0].sum().sign(), (-size, size))
                axis.set_title(f"{float(share):.0%}", fontsize=SMALL, pad=1.5)
            name_row(line[0], name if column == 0 else "", look(run.variant)["color"])
    carried = [
        f"{name} {mean(float(run.arrays['shares'][:count].sum()) for run in members):.0%}"
        for name, members in groups.items()
    ]
    figure.set_label(f"share of the data that the {width} leading vectors carry: {', '.join(carried)}")
    return figure


@styled
def strip_figure(runs: Sequence[Run], truth: Mapping[int, Tensor]) -> Figure:
    """Draw for each variant a picture, and next to it the picture that the reverse pass rebuilds, from the start of
    training to its end. The seed is the first one that most variants have.

    Args:
        runs: with the array "rebuilt", pictures at each moment.
        truth: seed → the first picture (1, H, W) itself, with values up to 255.
    """
    groups = of_one_seed(runs)
    moments = max(len(run.arrays["rebuilt"]) for run in groups.values())
    shown = sorted({round(i * (moments - 1) / (LOOKS - 1)) for i in range(LOOKS)})
    figure, axes = new_figure(len(groups), 1 + len(shown), (WIDTH, 0.3 + 0.72 * len(groups)))
    cosines = []
    for line, (name, run) in zip(axes, groups.items(), strict=True):
        picture, rebuilt = truth[run.seed][0], run.arrays["rebuilt"]
        show_picture(line[0], picture, (0.0, 255.0))
        name_row(line[0], name, look(run.variant)["color"])
        for axis, moment in zip(line[1:], shown, strict=True):
            axis.set_axis_off()
            if moment < len(rebuilt):
                show_picture(axis, rebuilt[moment, 0, 0], (0.0, 255.0))
        cosine = torch.cosine_similarity(picture.flatten(), rebuilt[-1, 0, 0].flatten(), dim=0)
        cosines.append(f"{name} {float(cosine):.2f}")
    for axis, text in zip(axes[0], ["d1", *_moments(shown, moments)], strict=True):
        axis.set_title(text, fontsize=SMALL, pad=2)
    figure.set_label(f"cosine between the picture and what is made of it at the end: {', '.join(cosines)}")
    return figure


def _moments(shown: Sequence[int], moments: int) -> list[str]:
    """Titles of the moments of a training that are shown, given by their indices: "start" for the first one, "end" for
    the last of all ``moments``, and between them the share of the training that is done."""
    names = {0: "start", moments - 1: "end"}
    return [names.get(moment, f"{100 * moment / max(1, moments - 1):.0f} %") for moment in shown]


@styled
def rebuilt_figure(runs: Sequence[Run]) -> Figure:
    """Draw a row of inputs d1, and for each variant a row of the inputs as the reverse pass rebuilds them, from one
    seed, the one that most variants have."""
    groups = of_one_seed(runs)
    truth = next(run.arrays["d1"] for run in groups.values() if "d1" in run.arrays)[:ACROSS]
    rows = [("d1", "black", truth)]
    rows += [(name, look(run.variant)["color"], run.arrays["rebuilt"]) for name, run in groups.items()]
    figure, axes = new_figure(len(rows), len(truth), (WIDTH, 0.48 * len(rows)))
    for line, (name, colour, pictures) in zip(axes, rows, strict=True):
        for axis, picture in zip(line, pictures, strict=False):
            show_picture(axis, picture[0], (0.0, 1.0))
        name_row(line[0], name, colour)
    figure.set_label(_mean_ssim(runs))
    return figure


def _mean_ssim(runs: Sequence[Run]) -> str:
    """Text with each variant's SSIM of true and rebuilt pictures, mean over all seeds; empty if it was not measured."""
    known = {
        name: [run.metrics["ssim"] for run in members if run.metrics.get("ssim") is not None]
        for name, members in by_variant(runs).items()
    }
    means = [f"{name} {mean(values):.2f}" for name, values in known.items() if values]
    return f"mean likeness (SSIM) of the picture and what is made of it: {', '.join(means)}" if means else ""


def of_one_seed(runs: Sequence[Run]) -> Mapping[str, Run]:
    """Variant → its run with one seed, the same for all: the one that most variants have."""
    seeds = sorted(run.seed for run in runs)
    seed = max(seeds, key=seeds.count)
    return {name: run for name, members in by_variant(runs).items() for run in members if run.seed == seed}


def name_row(axis: Axes, text: str, colour: str) -> None:
    """Write the name of a row to the left of its first picture."""
    axis.set_axis_on()
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    axis.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=8, color=colour)


def show_picture(axis: Axes, picture: Tensor, limits: tuple[float, float] | None = None) -> None:
    """Draw a picture (H, W) in grey, from black to white between the ``limits``; None: from 0 to its largest value."""
    low, high = limits or (0.0, float(picture.abs().max()) or 1.0)
    axis.imshow(picture.numpy(), cmap="gray", vmin=low, vmax=high, interpolation="nearest")
    axis.set_axis_off()

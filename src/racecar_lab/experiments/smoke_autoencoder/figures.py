"""Figures of smoke-autoencoder: rebuilt pictures, maps of the error, and learning curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.experiments.paper_figures import DASHES, chosen, having
from racecar_lab.experiments.picture_figures import name_row, of_one_seed, show_picture
from racecar_lab.experiments.smoke_autoencoder.stages import FILLS, TASKS, stage_name
from racecar_lab.report.groups import by_setting, by_variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

Kinds = Mapping[tuple[str, str], Sequence["Run"]]
"""(variant, fill) → runs of this kind of autoencoder. The fill is the part that takes weights from a GAN; "": none,
from scratch."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure, three for each setting and task: pictures, maps of the error, and learning curves."""
    figures = {}
    for setting, members in by_setting(chosen(runs)).items():
        for task, description in TASKS.items():
            kinds = kinds_of_task(members, task)
            if not kinds:
                continue
            suffix = f"{description}{setting}"
            figures[f"Held-out pictures and what autoencoders make of them: {suffix}"] = pictures_figure(kinds)
            figures[f"Where the error is (MAE, mean over held-out pictures): {suffix}"] = maps_figure(kinds)
            figures[f"Who learns sooner: error on held-out pictures during training, {suffix}"] = curves_figure(kinds)
    return figures


def kinds_of_task(runs: Sequence[Run], task: str) -> dict[tuple[str, str], list[Run]]:
    """Kind of autoencoder, (variant, fill) → its runs on a task; kinds from scratch come first."""
    kinds: dict[tuple[str, str], list[Run]] = {}
    for fill in ("", *FILLS):
        of_stage = having([run for run in runs if run.stage == stage_name(task, fill)], "curve")
        kinds |= {(name, fill): members for name, members in by_variant(of_stage).items()}
    return kinds


def kind_name(kind: tuple[str, str]) -> str:
    """Name of a kind of autoencoder, as "RR, both": the variant, and the part that takes weights from its GAN."""
    variant, fill = kind
    return f"{variant}, {fill or 'scratch'}"


def _coloured(picture: Tensor) -> Tensor:
    """Turn a picture (C, H, W) into the form that matplotlib draws: grey ones (H, W), coloured ones (H, W, C)."""
    return picture[0] if len(picture) == 1 else picture.permute(1, 2, 0)


@styled
def pictures_figure(kinds: Kinds) -> Figure:
    """Draw held-out pictures in the first row, and below them what autoencoders make of them, a row for each kind, from
    the seed that most runs have."""
    runs = {kind: next(iter(of_one_seed(members).values())) for kind, members in kinds.items()}
    truth = next(iter(runs.values())).arrays["truth"]
    rows = [("truth", "black", truth)]
    rows += [(kind_name(kind), look(kind[0].split()[0])["color"], run.arrays["again"]) for kind, run in runs.items()]
    figure, axes = new_figure(len(rows), len(truth), (WIDTH, 0.62 * len(rows)))
    for line, (name, colour, pictures) in zip(axes, rows, strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            show_picture(axis, _coloured(picture), (0.0, 255.0))
        name_row(line[0], name, colour)
    errors = [
        f"{kind_name(kind)} {mean(run.metrics['test_l2'] for run in members):.2g}" for kind, members in kinds.items()
    ]
    figure.set_label(f"mean square error, mean over all seeds: {', '.join(errors)}")
    return figure


@styled
def maps_figure(kinds: Kinds) -> Figure:
    """Draw for each kind of autoencoder a map of the mean absolute error, mean over seeds, all on one scale; black is
    no error."""
    maps = {kind: torch.stack([run.arrays["mae"][0, 0] for run in members]).mean(0) for kind, members in kinds.items()}
    largest, across = max(float(error.max()) for error in maps.values()) or 1.0, min(3, len(maps))
    rows = math.ceil(len(maps) / across)
    figure, axes = new_figure(rows, across, (WIDTH, 1.3 * rows))
    places = [axis for line in axes for axis in line]
    for axis in places:
        axis.set_axis_off()
    for axis, (kind, error) in zip(places, maps.items(), strict=False):
        show_picture(axis, error, (0.0, largest))
        axis.set_title(kind_name(kind), fontsize=SMALL, pad=2)
    means = ", ".join(f"{kind_name(kind)} {float(error.mean()):.3g}" for kind, error in maps.items())
    figure.set_label(f"mean absolute error (white: {largest:.2g}): {means}")
    return figure


@styled
def curves_figure(kinds: Kinds) -> Figure:
    """Draw the error on held-out pictures during training, geometric mean over seeds: a line style for each fill, a
    colour for each variant."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, 3.2))
    lines = dict(zip(("", *FILLS), (DASHES[2], DASHES[1], DASHES[0]), strict=True))
    curves = {kind: mean_curve(members) for kind, members in kinds.items()}
    for (variant, fill), (steps, errors) in curves.items():
        colour = look(variant.split()[0])["color"]
        axis.plot(steps, errors, color=colour, linestyle=lines[fill], linewidth=1.0, label=kind_name((variant, fill)))
    axis.set(yscale="log", xlabel="steps", ylabel="mean square error")
    axis.yaxis.set_major_formatter("{x:g}")
    figure.legend(loc="outside upper center", ncols=2, fontsize=SMALL)
    goal = next((errors[-1] for kind, (_, errors) in curves.items() if kind[0] == "Std"), None)
    if goal is not None:
        steps_needed = [f"{kind_name(kind)} {steps_to(goal, *curve)}" for kind, curve in curves.items()]
        first = kind_name(next(kind for kind in curves if kind[0] == "Std"))
        figure.set_label(f"steps until the error is that of {first} at its end, {goal:.2g}: {', '.join(steps_needed)}")
    return figure


def mean_curve(runs: Sequence[Run]) -> tuple[list[float], list[float]]:
    """Learning curve of several runs: the steps at which the error on held-out pictures was recorded, and its geometric
    mean over the runs."""
    curves = torch.stack([run.arrays["curve"].double() for run in runs]).clamp(min=1e-12)
    errors = curves.log().mean(0).exp().tolist()
    total, looks = int(runs[0].record["cost"]["steps"]), int(runs[0].config["looks"])
    every = max(1, total // looks)  # the trainer records at these steps, and once more at the end
    return [float(min(i * every, total)) for i in range(len(errors) - 1)] + [float(total)], errors


def steps_to(goal: float, steps: Sequence[float], errors: Sequence[float]) -> str:
    """Text with the first of the steps at which the error is down to the goal, or "never"."""
    reached = [step for step, error in zip(steps, errors, strict=True) if error <= goal]
    return f"{reached[0]:.0f}" if reached else "never"

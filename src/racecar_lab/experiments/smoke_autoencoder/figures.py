"""Figures of smoke-autoencoder: what comes back, where the error is, and who learns sooner."""

from __future__ import annotations

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
"""(variant, fill) → its runs; no fill: from scratch."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """By title, for each setting and task."""
    figures = {}
    for where, some in by_setting(chosen(runs)).items():
        for task, what in TASKS.items():
            kinds = of_task(some, task)
            if not kinds:
                continue
            figures[f"Held-out pictures and what autoencoders make of them: {what}{where}"] = pictures_figure(kinds)
            figures[f"Where the error is (MAE, mean over held-out pictures): {what}{where}"] = maps_figure(kinds)
            figures[f"Who learns sooner: error on held-out pictures during training, {what}{where}"] = curves_figure(
                kinds
            )
    return figures


def of_task(runs: Sequence[Run], task: str) -> dict[tuple[str, str], list[Run]]:
    """Every kind of autoencoder that was trained on a task, from scratch first."""
    found: dict[tuple[str, str], list[Run]] = {}
    for fill in ("", *FILLS):
        own = having([run for run in runs if run.stage == stage_name(task, fill)], "curve")
        found |= {(name, fill): some for name, some in by_variant(own).items()}
    return found


def told(kind: tuple[str, str]) -> str:
    """A kind in words."""
    variant, fill = kind
    return f"{variant}, {fill or 'scratch'}"


def _coloured(picture: Tensor) -> Tensor:
    """(C, H, W) as matplotlib has it: grey ones without channels."""
    return picture[0] if len(picture) == 1 else picture.permute(1, 2, 0)


@styled
def pictures_figure(kinds: Kinds) -> Figure:
    """The first row is the truth; of the seed that most have."""
    first = {kind: of_one_seed(some) for kind, some in kinds.items()}
    runs = {kind: next(iter(some.values())) for kind, some in first.items()}
    truth = next(iter(runs.values())).arrays["truth"]
    rows = [("truth", "black", truth)]
    rows += [(told(kind), look(kind[0].split()[0])["color"], run.arrays["again"]) for kind, run in runs.items()]
    figure, axes = new_figure(len(rows), len(truth), (WIDTH, 0.62 * len(rows)))
    for line, (name, colour, pictures) in zip(axes, rows, strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            show_picture(axis, _coloured(picture), (0.0, 255.0))
        name_row(line[0], name, colour)
    said = [f"{told(kind)} {mean(run.metrics['test_l2'] for run in some):.2g}" for kind, some in kinds.items()]
    figure.set_label(f"mean square error, mean over all seeds: {', '.join(said)}")
    return figure


@styled
def maps_figure(kinds: Kinds) -> Figure:
    """Mean over seeds; all have one scale, black is no error."""
    maps = {kind: torch.stack([run.arrays["mae"][0, 0] for run in some]).mean(0) for kind, some in kinds.items()}
    most, across = max(float(one.max()) for one in maps.values()) or 1.0, min(3, len(maps))
    rows = -(-len(maps) // across)
    figure, axes = new_figure(rows, across, (WIDTH, 1.3 * rows))
    places = [axis for line in axes for axis in line]
    for axis in places:
        axis.set_axis_off()
    for axis, (kind, one) in zip(places, maps.items(), strict=False):
        show_picture(axis, one, (0.0, most))
        axis.set_title(told(kind), fontsize=SMALL, pad=2)
    said = ", ".join(f"{told(kind)} {float(one.mean()):.3g}" for kind, one in maps.items())
    figure.set_label(f"mean absolute error (white: {most:.2g}): {said}")
    return figure


@styled
def curves_figure(kinds: Kinds) -> Figure:
    """Mean over seeds, of the logarithm; a line for each fill, a colour for each variant."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, 3.2))
    lines = dict(zip(("", *FILLS), (DASHES[2], DASHES[1], DASHES[0]), strict=True))
    curves = {kind: mean_curve(some) for kind, some in kinds.items()}
    for (variant, fill), (steps, errors) in curves.items():
        colour = look(variant.split()[0])["color"]
        axis.plot(steps, errors, color=colour, linestyle=lines[fill], linewidth=1.0, label=told((variant, fill)))
    axis.set(yscale="log", xlabel="steps", ylabel="mean square error")
    axis.yaxis.set_major_formatter("{x:g}")
    figure.legend(loc="outside upper center", ncols=2, fontsize=SMALL)
    goal = next((errors[-1] for kind, (_, errors) in curves.items() if kind[0] == "Std"), None)
    if goal is not None:
        said = [f"{told(kind)} {steps_to(goal, *curve)}" for kind, curve in curves.items()]
        first = told(next(kind for kind in curves if kind[0] == "Std"))
        figure.set_label(f"steps until the error is that of {first} at its end, {goal:.2g}: {', '.join(said)}")
    return figure


def mean_curve(runs: Sequence[Run]) -> tuple[list[float], list[float]]:
    """Steps and the geometric mean of the errors there."""
    curves = torch.stack([run.arrays["curve"].double() for run in runs]).clamp(min=1e-12)
    errors = curves.log().mean(0).exp().tolist()
    total, looks = int(runs[0].record["cost"]["steps"]), int(runs[0].config["looks"])
    every = max(1, total // looks)  # as the trainer looks, and once more at the end
    return [float(min(i * every, total)) for i in range(len(errors) - 1)] + [float(total)], errors


def steps_to(goal: float, steps: Sequence[float], errors: Sequence[float]) -> str:
    """The first look at which an error was reached, in steps."""
    reached = [step for step, error in zip(steps, errors, strict=True) if error <= goal]
    return f"{reached[0]:.0f}" if reached else "never"

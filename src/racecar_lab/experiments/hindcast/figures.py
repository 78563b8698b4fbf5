"""Figures of hindcast: errors over the steps, and pictures of forecasts and hindcasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.experiments.hindcast.measuring import SHOWN, STEPS
from racecar_lab.experiments.hindcast.stages import KINDS
from racecar_lab.experiments.paper_figures import chosen, having
from racecar_lab.experiments.picture_figures import name_row, of_one_seed, show_picture
from racecar_lab.report.groups import by_setting, by_variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

TITLES = {"forward": "forecasts", "backward": "hindcasts"}
"""Direction → what it makes."""
LIMITS = (-2.5, 2.5)
"""Heights that are black and white."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure, for each setting."""
    figures = {}
    for setting, members in by_setting(chosen(having(runs, "truth"))).items():
        figures[f"Error of forecasts and hindcasts over the steps{setting}"] = error_figure(members)
        for direction, title in TITLES.items():
            name = f"The true state, and {title} of it, after so many steps from the start{setting}"
            figures[name] = pictures_figure(members, direction)
    return figures


def kinds_of(runs: Sequence[Run], array: str) -> dict[str, list[Run]]:
    """Name of a variant or rival → its runs with this array."""
    kinds = by_variant(having([run for run in runs if run.stage == "A"], array))
    for stage in KINDS:
        if members := having([run for run in runs if run.stage == stage], array):
            kinds[stage] = members
    return kinds


def colour_of(name: str) -> str:
    """Colour of a variant or rival."""
    names = list(KINDS)
    return look(name.split()[0], names.index(name) if name in names else 0)["color"]


@styled
def error_figure(runs: Sequence[Run]) -> Figure:
    """Relative error over the steps, geometric mean over seeds, in both directions. Grey: no change at all."""
    figure, ((left, right),) = new_figure(1, 2, (WIDTH, 2.8))
    labels, summary = {}, []
    for axis, direction in zip((left, right), TITLES, strict=True):
        kinds = kinds_of(runs, f"error_{direction}")
        for name, members in kinds.items():
            curves = torch.stack([run.arrays[f"error_{direction}"].double() for run in members]).clamp(min=1e-9)
            curve = curves.log().mean(0).exp().tolist()
            (labels[name],) = axis.plot(
                range(1, len(curve) + 1), curve, color=colour_of(name), linewidth=1.0,
                linestyle="--" if name in KINDS else "-",
            )  # fmt: skip
            if direction == "backward":
                summary.append(f"{name} {', '.join(f'{curve[count - 1]:.2g}' for count in STEPS)}")
        persistence = torch.stack([run.arrays["persistence"] for run in runs]).mean(0).tolist()
        axis.plot(range(1, len(persistence) + 1), persistence, color="#999999", linestyle=":", linewidth=1.0)
        axis.set(xlabel="steps", yscale="log", title=TITLES[direction])
        axis.yaxis.set_major_formatter("{x:g}")
    left.set_ylabel("relative error")
    right.sharey(left)
    figure.legend(list(labels.values()), list(labels), loc="outside upper center", ncols=4, fontsize=SMALL)
    counts = ", ".join(map(str, STEPS))
    figure.set_label(f"error of hindcasts after {counts} steps: {'; '.join(summary)}")
    return figure


@styled
def pictures_figure(runs: Sequence[Run], direction: str) -> Figure:
    """The true state at a few times, and below it a row for each variant and rival, of the seed that most runs have.
    Forecasts start at the left picture, hindcasts at the right one."""
    kinds = {name: next(iter(of_one_seed(members).values())) for name, members in kinds_of(runs, direction).items()}
    rows = [("truth", "black", next(iter(kinds.values())).arrays["truth"])]
    rows += [(name, colour_of(name), run.arrays[direction]) for name, run in kinds.items()]
    figure, axes = new_figure(len(rows), len(SHOWN), (WIDTH, 0.3 + 0.72 * len(rows)))
    for line, (name, colour, pictures) in zip(axes, rows, strict=True):
        for axis, picture in zip(line, pictures, strict=True):
            show_picture(axis, picture, LIMITS)
        name_row(line[0], name, colour)
    for axis, time in zip(axes[0], SHOWN, strict=True):
        axis.set_title(f"step {time}", fontsize=SMALL, pad=2)
    errors = [f"{name} {float(run.arrays[f'error_{direction}'][-1]):.2g}" for name, run in kinds.items()]
    figure.set_label(f"relative error of the {TITLES[direction]} after {SHOWN[-1]} steps: {', '.join(errors)}")
    return figure

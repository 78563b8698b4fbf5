"""Figures of disentangle: digits while one code varies, and real digits with what the read codes generate."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from torch import Tensor

from racecar.inspect.style import SMALL, WIDTH, look, new_figure, styled
from racecar_lab.experiments.paper_figures import having
from racecar_lab.experiments.picture_figures import name_row, of_one_seed, show_picture
from racecar_lab.report.groups import by_setting, by_variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

CODES = ("c1", "c2", "c3")


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure, four for each setting."""
    figures = {}
    for setting, members in by_setting([run for run in runs if run.stage == "A"]).items():
        pictured = having(members, "varied")
        for i, code in enumerate(CODES) if pictured else ():
            title = f"From left to right {code} varies, in every row with other noise{setting}"
            figures[title] = varied_figure(pictured, i)
        if pictured:
            title = f"Real digits, and below what their codes generate, as each variant reads them{setting}"
            figures[title] = read_figure(pictured)
    return figures


@styled
def varied_figure(runs: Sequence[Run], code: int) -> Figure:
    """The pictures of every variant, of the seed that most variants have.

    Args:
        runs: with the array "varied".
        code: 0 for c1, 1 for c2, 2 for c3.
    """
    groups = of_one_seed(runs)
    figure, axes = new_figure(len(groups), 1, (WIDTH, 1.55 * len(groups)))
    for (axis,), (name, run) in zip(axes, groups.items(), strict=True):
        show_picture(axis, tiled(run.arrays["varied"][code]), (0.0, 255.0))
        name_row(axis, name, look(run.variant)["color"])
    metric = ("shown_accuracy", "generated_c2", "generated_c3")[code]
    meaning = (
        "share of generated digits that go with c1" if code == 0 else f"|ρ| of {CODES[code]} and what is read of it"
    )
    figure.set_label(f"{meaning}, mean over all seeds: {_means(runs, metric)}")
    return figure


@styled
def read_figure(runs: Sequence[Run]) -> Figure:
    """A row of real digits, and for each variant a row of the pictures that their codes generate, with c1 above each;
    of the seed that most variants have."""
    groups = of_one_seed(runs)
    real = next(iter(groups.values())).arrays["real"]
    figure, axes = new_figure(1 + len(groups), len(real), (WIDTH, 0.3 + 0.48 * (1 + len(groups))))
    for axis, picture in zip(axes[0], real, strict=True):
        show_picture(axis, picture, (0.0, 255.0))
    name_row(axes[0][0], "real", "black")
    for line, (name, run) in zip(axes[1:], groups.items(), strict=True):
        for axis, picture, c1 in zip(line, run.arrays["read"], run.arrays["read_c1"].tolist(), strict=True):
            show_picture(axis, picture, (0.0, 255.0))
            axis.set_title(f"{c1}", fontsize=SMALL, pad=1)
        name_row(line[0], name, look(run.variant)["color"])
    figure.set_label(f"best-match accuracy of c1, mean over all seeds: {_means(runs, 'real_accuracy')}")
    return figure


def tiled(pictures: Tensor) -> Tensor:
    """Pictures (rows, columns, H, W) as one, (rows · H, columns · W)."""
    rows, columns, height, width = pictures.shape
    return pictures.transpose(1, 2).reshape(rows * height, columns * width)


def _means(runs: Sequence[Run], metric: str) -> str:
    return ", ".join(
        f"{name} {mean(run.metrics[metric] for run in members):.2f}" for name, members in by_variant(runs).items()
    )

"""Figures of smoke: input, output, target and rebuilt input, and energy spectra."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

import torch

from racecar.inspect.style import SMALL, WIDTH, new_figure, styled
from racecar.inspect.style import look as look_of_variant
from racecar_lab.experiments.paper_figures import chosen, having, look_of
from racecar_lab.experiments.picture_figures import name_row, of_one_seed, show_picture
from racecar_lab.report.groups import by_setting, by_variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

COLUMNS = {"low": "input", "high": "output", "truth": "target", "rebuilt": "rebuilt input"}
"""Name of a run's array of pictures → title of its column in the figure."""
FRAMES = 2
"""Largest number of frames that the figure of pictures shows for every variant."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure, two for each setting: pictures, and energy spectra."""
    figures = {}
    for setting, members in by_setting(chosen(runs)).items():
        if pictured := having(members, "rebuilt"):
            title = "Held-out plumes: input, output, target, and the input as the reverse pass rebuilds it"
            figures[f"{title}{setting}"] = pictures_figure(pictured)
        if measured := having(members, "spectra"):
            figures[f"Energy of held-out plumes by wavenumber{setting}"] = spectra_figure(measured)
    return figures


@styled
def pictures_figure(runs: Sequence[Run]) -> Figure:
    """Draw pictures of the last and the first recorded frame: a row for each variant, from one seed, the one that most
    variants have."""
    groups = of_one_seed(runs)
    frames = sorted({0, len(next(iter(groups.values())).arrays["low"]) - 1}, reverse=True)[:FRAMES]
    rows = [(frame, name, run) for frame in frames for name, run in groups.items()]
    figure, axes = new_figure(len(rows), len(COLUMNS), (WIDTH, 0.3 + 0.78 * len(rows)))
    for line, (frame, name, run) in zip(axes, rows, strict=True):
        for axis, column in zip(line, COLUMNS, strict=True):
            show_picture(axis, run.arrays[column][frame, 0], (0.0, 255.0))
        name_row(line[0], name, look_of_variant(run.variant)["color"])
    for axis, text in zip(axes[0], COLUMNS.values(), strict=True):
        axis.set_title(text, fontsize=SMALL, pad=2)
    groups_of_all = by_variant(runs).items()
    means = [f"{name} {mean(run.metrics['psnr'] for run in members):.1f} dB" for name, members in groups_of_all]
    figure.set_label(f"PSNR of the rebuilt input, mean over all seeds: {', '.join(means)}")
    return figure


@styled
def spectra_figure(runs: Sequence[Run]) -> Figure:
    """Draw energy spectra of the generators' output, mean over seeds. Black: the truth; dotted: bicubic
    interpolation."""
    figure, ((axis,),) = new_figure(1, 1, (WIDTH, 3.0))
    groups, distances = by_variant(runs), []
    for name, members in groups.items():
        spectrum = torch.stack([run.arrays["spectra"][0] for run in members]).mean(0)
        style = {key: value for key, value in look_of(name, groups).items() if not key.startswith("marker")}
        axis.plot(range(1, len(spectrum)), spectrum[1:].tolist(), linewidth=1.0, label=name, **style)
        distances.append(f"{name} {mean(run.metrics['test_spectrum'] for run in members):.2f}")
    _, truth, bicubic = next(iter(groups.values()))[0].arrays["spectra"]
    axis.plot(range(1, len(truth)), truth[1:].tolist(), color="black", linewidth=0.8, label="truth")
    axis.plot(
        range(1, len(bicubic)), bicubic[1:].tolist(), color="#777777", linestyle=":", linewidth=1.2, label="bicubic"
    )
    axis.set(xscale="log", yscale="log", xlabel="wavenumber", ylabel="energy")
    for one_axis in (axis.xaxis, axis.yaxis):
        one_axis.set_major_formatter("{x:g}")  # exponents would be too small to read on a phone
    figure.legend(loc="outside upper center", ncols=3, fontsize=SMALL)
    figure.set_label(f"mean distance from the truth, in powers of ten: {', '.join(distances)}")
    return figure

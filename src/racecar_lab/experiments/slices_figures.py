"""The figure of the slices: every share of the batch beside the exact loss and plain training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from racecar_lab.report.groups import Group, collect, gather, label
from racecar_lab.report.run_figures import runs_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

METRICS = (("A", "reverse_loss"), ("A", "test_accuracy"))
SLICE = ("fraction", "every")
"""The fields that say which slice it is."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """By title, one for each setting beside the slice."""
    groups = sorted(gather(runs).groups, key=_place)
    settings = collect((tuple(one for one in group.setting if one[0] not in SLICE), group) for group in groups)
    figures = {}
    for setting in sorted(settings, key=label):
        where = f" ({label(setting)})" if setting else ""
        for metric in METRICS:
            title = f"{metric[1]} of every slice beside the exact loss: every run, with the mean and its 95 % interval"
            figures[f"{title}{where}"] = runs_figure(settings[setting], [metric], {}, slice_name)
    return figures


def slice_name(group: Group) -> str:
    """As "1/8, 1 of 4": of the batch, and of steps; "exact" for all of both. A variant that has no slice has its own
    name."""
    if group.coefficient is None:
        return group.variant
    fraction, every = (group.config[name] for name in SLICE)
    share = "all" if fraction == 1 else f"1/{round(1 / fraction)}"
    return "exact" if (fraction, every) == (1, 1) else share if every == 1 else f"{share}, 1 of {every}"


def _place(group: Group) -> tuple[bool, int, float]:
    """Plain training first, then exact, then ever smaller slices."""
    return group.coefficient is not None, group.config["every"], -group.config["fraction"]

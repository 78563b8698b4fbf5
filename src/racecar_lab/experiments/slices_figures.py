"""Figures of the slices: each slice compared with the exact reverse loss and with plain training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from racecar_lab.report.groups import Group, collect, gather
from racecar_lab.report.run_figures import runs_figure
from racecar_lab.report.settings import label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from racecar_lab.running.run import Run

METRICS = (("A", "reverse_loss"), ("A", "test_accuracy"))
SLICE = ("fraction", "every")
"""The fields of the configuration that define a slice."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure, one for each metric and setting; a figure shows all slices."""
    groups = sorted(gather(runs), key=_order)
    settings = collect((tuple(field for field in group.setting if field[0] not in SLICE), group) for group in groups)
    figures = {}
    for setting in sorted(settings, key=label):
        suffix = f" ({label(setting)})" if setting else ""
        for metric in METRICS:
            title = f"{metric[1]} of every slice beside the exact loss: every run, with the mean and its 95 % interval"
            figures[f"{title}{suffix}"] = runs_figure(settings[setting], [metric], {}, slice_name)
    return figures


def slice_name(group: Group) -> str:
    """Label of a slice, as "1/8, 1 of 4" (share of the batch, share of the steps) or "exact"; the variant's name, if it
    has no reverse pass."""
    if group.weight is None:
        return group.variant
    fraction, every = (group.config[name] for name in SLICE)
    if (fraction, every) == (1, 1):
        return "exact"
    share = "all" if fraction == 1 else f"1/{round(1 / fraction)}"
    return share if every == 1 else f"{share}, 1 of {every}"


def _order(group: Group) -> tuple[bool, int, float]:
    """Sort key: plain training first, then the exact reverse pass, then ever smaller slices."""
    return group.weight is not None, group.config["every"], -group.config["fraction"]

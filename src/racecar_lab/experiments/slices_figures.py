"""Figures of the experiment slices: each reduced reverse pass compared with the exact one and with plain training."""

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
"""Names of the configuration's fields that say how much the reverse pass is reduced: the share of the batch that it
sees, and the number of steps of which one has it."""


def all_figures(runs: Sequence[Run]) -> dict[str, Figure]:
    """Title → figure, one for each metric and setting; a figure shows all reduced reverse passes beside the exact
    one."""
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
    """Label of a group of runs by its reverse pass, as "1/8, 1 of 4" (share of the batch, share of the steps) or
    "exact"; the variant's name, if it has no reverse pass."""
    if group.weight is None:
        return group.variant
    fraction, every = (group.config[name] for name in SLICE)
    if (fraction, every) == (1, 1):
        return "exact"
    share = "all" if fraction == 1 else f"1/{round(1 / fraction)}"
    return share if every == 1 else f"{share}, 1 of {every}"


def _order(group: Group) -> tuple[bool, int, float]:
    """Sort key of a group of runs: plain training first, then the exact reverse pass, then ever smaller ones."""
    return group.weight is not None, group.config["every"], -group.config["fraction"]

"""Real runs of the paper's experiments changed a little, their figures, and what is to be seen in those."""

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from racecar_lab.experiments import experiment
from racecar_lab.running.run import Run

SMALL = {
    "digits": ({"shipped": True, "epochs": 2}, ("Std", "RR"), 2),
    "peaks": ({"epochs": 2, "nets": ("linear", "two")}, ("Std", "RR"), 1),
    "information": ({"epochs": 1, "finetune": 1}, ("Std", "RR"), 1),
}


class Kept(Run):
    """A run with arrays of its own."""

    arrays = {}  # noqa: RUF012


def other(run: Run, arrays: bool = True, **changes) -> Run:
    """The same run with some of its record changed."""
    copy = Kept({**run.record, **changes}, run.store)
    object.__setattr__(copy, "arrays", run.arrays if arrays else {})
    return copy


def diverged(run: Run) -> Run:
    return other(run, False, status="diverged", metrics={}, tables={}, curves={}, note="not finite")


def draw(name: str, runs: Sequence[Run]) -> dict[str, Figure]:
    figures = experiment(name).reporting.figures(runs)
    assert all(isinstance(figure, Figure) for figure in figures.values())
    return figures


def shown(figure: Figure) -> int:
    """How much there is to see."""
    return sum(len(axis.lines) + len(axis.images) for axis in figure.axes)


def find(figures, word):
    (found,) = [figure for title, figure in figures.items() if word in title]
    return found


def planes(figures):
    """{stage: {label: points}}, of figures of one setting"""
    return {
        re.search(r"stage (\w+)", title)[1]: {
            line.get_label(): np.column_stack(line.get_data()) for line in figure.axes[0].lines
        }
        for title, figure in figures.items()
        if "plane" in title
    }


def points(runs, variant, stage):
    rows = [run.tables["plane"] for run in runs if (run.variant, run.stage) == (variant, stage)]
    return np.mean([[(row["i_xd"], row["i_dy"]) for row in one] for one in rows], axis=0)


def shifted(run, by, **changes):
    """A run whose plane and accuracy are elsewhere."""
    rows = [{**row, "i_xd": row["i_xd"] + by} for row in run.tables["plane"]]
    sweep = {bins: [[a + by, b] for a, b in pairs] for bins, pairs in run.tables["sweep"].items()}
    metrics = {**run.metrics, "test_accuracy": run.metrics["test_accuracy"] + by / 100}
    return other(run, metrics=metrics, tables={**run.tables, "plane": rows, "sweep": sweep}, **changes)

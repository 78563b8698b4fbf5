"""A picture of docs/inspect.md: what the first layer of the peak experiment's 784-128-2 net looks for.

python -m benchmarks.peaks [--results results/peaks] [--figure docs/images/peaks.svg]
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.pages import write_figure
from racecar_lab.experiments.paper_figures import having
from racecar_lab.experiments.picture_figures import vectors_figure
from racecar_lab.report.groups import gather
from racecar_lab.running.results import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(folder: Path) -> Figure:
    runs = [run for run in gather(Store(folder).runs()).runs if run.config["nets"] == ["two"]]
    return vectors_figure(having(runs, "vectors"), "class means")


if __name__ == "__main__":
    write_figure(__doc__, Path("results/peaks"), Path("docs/images/peaks.svg"), figure)

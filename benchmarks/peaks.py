"""The picture of README.md: what the first layer of the peak experiment's 784-128-2 net looks for.

python -m benchmarks.peaks [--results results/peaks] [--figure docs/images/peaks.svg]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from racecar.lab.experiments.paper_figures import having
from racecar.lab.experiments.picture_figures import vectors_figure
from racecar.lab.report.groups import gather
from racecar.lab.report.pictures import save_light
from racecar.lab.running.results import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(folder: Path) -> Figure:
    runs = [run for run in gather(Store(folder).runs()).runs if run.config["nets"] == ["two"]]
    return vectors_figure(having(runs, "vectors"), "class means")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/peaks"))
    parser.add_argument("--figure", type=Path, default=Path("docs/images/peaks.svg"))
    asked = parser.parse_args()
    save_light(figure(asked.results), asked.figure)


if __name__ == "__main__":
    main()

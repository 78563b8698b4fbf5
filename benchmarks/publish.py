"""Put finished runs and the searches behind them into a folder of results, and make its page.

    python -m benchmarks.publish results/long-training --search default-6-none=out/s-6-none --run out/6-none out/6-batch

A search is a folder with the tuned.json that ``racecar search`` wrote; it becomes a line of tuned.jsonl under its name.
Of runs, the records are taken, without curves, and the arrays that figures show; records of the same nets that are
there already are replaced, also where another search had chosen their settings. Where two experiments share a folder of
runs, ``--experiment`` says which one's are taken. ``racecar_lab.running.published`` says what the files hold.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from racecar.support.files import write_text
from racecar_lab.cli.report import report
from racecar_lab.experiments import EXPERIMENTS
from racecar_lab.report.figure_arrays import figure_arrays
from racecar_lab.running.published import write_published
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run

SEARCHES = "tuned.jsonl"


def searches(folder: Path, found: dict[str, Path]) -> int:
    """Their number, new ones among them."""
    path = folder / SEARCHES
    lines = path.read_text().splitlines() if path.exists() else []
    known = {json.loads(line)["name"]: line for line in lines}
    for name, one in found.items():
        known[name] = json.dumps({"name": name, **json.loads((one / "tuned.json").read_text())})
    write_text(path, "".join(f"{known[name]}\n" for name in sorted(known)))
    return len(known)


def publish(folder: Path, sources: Sequence[Path], experiment: str = "") -> tuple[int, int]:
    """Put the runs of an experiment, or of all, into a folder.

    Returns:
        How many were taken, and how many arrays the figures of the folder show.
    """
    found = [run for source in sources for run in Store(source).runs()]
    new = [run for run in found if experiment in ("", run.record["experiment"])]
    if not new:
        raise ValueError(f"no records{f' of {experiment}' if experiment else ''} in {', '.join(map(str, sources))}")
    runs = [*kept(Store(folder).runs(), new), *(Run({**run.record, "curves": {}}, run.store) for run in new)]
    arrays = figure_arrays(runs, EXPERIMENTS)
    write_published(folder, [run.record for run in runs], arrays)
    return len(new), sum(map(len, arrays.values()))


def kept(old: Sequence[Run], new: Sequence[Run]) -> list[Run]:
    """Those of a folder that stay: not the same runs, nor those of nets that were searched again, and have other ids
    now."""
    ids = {run.id for run in new}
    again = {_net(run.record) for run in new if run.record["tuned"]}
    return [run for run in old if run.id not in ids and not (run.record["tuned"] and _net(run.record) in again)]


def _net(record: dict[str, Any]) -> str:
    """All of a net but what a search chose for it."""
    return json.dumps([record[name] for name in ("experiment", "variant", "seed", "stage", "config")], sort_keys=True)


def named(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    return name, Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--search", type=named, nargs="*", default=[], metavar="NAME=DIR")
    parser.add_argument("--run", type=Path, nargs="+", required=True, metavar="DIR")
    parser.add_argument("--experiment", default="", metavar="NAME")
    arguments = parser.parse_args()
    runs, arrays = publish(arguments.folder, arguments.run, arguments.experiment)
    print(f"{runs} records, {searches(arguments.folder, dict(arguments.search))} searches")
    print(f"{arrays} arrays")
    report(arguments.folder)


if __name__ == "__main__":
    main()

"""Time the vmap engine against one net after the other, on the information experiment.

    python -m benchmarks.many_nets [--nets 10 60 120] [--epochs 20] [--rounds 5] [--out results/bench]

Both do the same steps of the same nets in the same run, in turns; a ratio of 3 means that the batched net needs
a third of the time. Recording the batched step, which is done once, does not count.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.records import as_module
from racecar.bench.record import circumstances, write_json
from racecar_lab.experiments import experiment
from racecar_lab.running import runner
from racecar_lab.running.engines.base import RunOptions
from racecar_lab.running.jobs import Job, make_jobs
from racecar_lab.running.results import Store
from racecar_lab.running.work import Maker


def jobs(variant: str, count: int, epochs: int) -> list[Job]:
    one = experiment("information")
    return make_jobs(one, one.Config(epochs=epochs), [variant], range(count), None)


def step_s(some: list[Job], engine: str) -> float:
    """Seconds for a step of one net: the median over the nets."""
    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(folder=Path(folder), maker=Maker("benchmark", engine), workers=1)
        if failures := runner.run(some, options, engine, show=False):
            raise RuntimeError(failures[0].details)
        return median(one.record["cost"]["step_s"] for one in Store(folder).runs())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=int, nargs="+", default=[10, 60, 120])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    options = parser.parse_args()
    rows = []
    for variant in ("Std", "RR"):
        for count in options.nets:
            some = jobs(variant, count, options.epochs)
            ratios = [step_s(some[:10], "here") / step_s(some, "vmap") for _ in range(options.rounds)]
            row = {"variant": variant, "nets": count, "ratio": median(ratios), "ratios": ratios}
            print(f"{variant:4} {count:4} nets: {row['ratio']:.1f} times as fast")
            rows.append(row)
    made = circumstances(as_module("benchmarks.many_nets"), "cpu")
    settings = {"epochs": options.epochs, "rounds": options.rounds}
    write_json(options.out / "many-nets-cpu.json", {**made, **settings, "rows": rows})


if __name__ == "__main__":
    main()

"""Time the laboratory against plain PyTorch, on digits and peaks: twelve trainings, from start to singular vectors.

    python -m benchmarks.first_two [--rounds 3] [--out results/bench]

Plainly: one process for each training (benchmarks/plainly.py), one after the other with all cores, as a loop in a shell
does it, and again as many at once as there are cores. Ours: the laboratory with both experiments, its start,
measurements and records included. All take the same steps from the same weights and must come to the same losses. In
turns; a ratio of 4 means that the laboratory needs a quarter of the time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import plainly
from benchmarks.records import as_module
from racecar.bench.record import circumstances, write_json
from racecar_lab.experiments import experiment
from racecar_lab.running import runner
from racecar_lab.running.engines.base import RunOptions
from racecar_lab.running.job import Job
from racecar_lab.running.jobs import make_jobs
from racecar_lab.running.record_writer import Maker
from racecar_lab.running.results import Store

VARIANTS = ("Std", "Ort", "RR")
CORES = len(os.sched_getaffinity(0))
CLOSE = 0.01
"""Largest relative difference of two losses that count as the same."""


def jobs() -> list[Job]:
    """The trainings of both experiments with their own settings, one seed; the digits come with racecar."""
    both = []
    for name, settings in (("digits", {"shipped": True}), ("peaks", {})):
        experiment_ = experiment(name)
        both += make_jobs(experiment_, experiment_.Config(**settings), VARIANTS, [plainly.SEED], None)
    return both


def name_of(job: Job) -> tuple[str, str, int]:
    """The arguments of the plain program for the same training as a job."""
    config: Any = job.config
    return config.nets[0] if job.experiment.name == "peaks" else "digits", job.variant, config.epochs


def laboratory() -> list[dict[str, Any]]:
    """Ours, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        _python("-m", "benchmarks.first_two", "--laboratory", folder)
        runs = [Store(folder).get(job.ids["A"]) for job in jobs()]
    return [{key: run.record["curves"][key][-1] for key in ("train_loss", "regulariser")} for run in runs]


def plain(at_once: int) -> list[dict[str, Any]]:
    """One process for each training, so many at once, which share the cores."""

    def train(job: Job) -> dict[str, Any]:
        return json.loads(_python(plainly.__file__, *map(str, name_of(job)), threads=CORES // at_once))

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(train, jobs()))


def _python(*arguments: str, threads: int = 1) -> str:
    path = os.pathsep.join(filter(None, ["src", ".", os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, check=True, env=environment
    ).stdout.decode()


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """True if two trainings came to the same losses."""
    return all(math.isclose(a[key], b[key], rel_tol=CLOSE, abs_tol=1e-4) for key in ("train_loss", "regulariser"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    parser.add_argument("--laboratory", type=Path, metavar="FOLDER", help="train ours alone, into a folder")
    options = parser.parse_args()
    if options.laboratory:
        made = RunOptions(folder=options.laboratory, maker=Maker("benchmark", "here"))
        sys.exit(len(runner.run(jobs(), made, "here", show=False)))
    ways: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "plain, one after the other": lambda: plain(1),
        f"plain, {CORES} at once": lambda: plain(CORES),
        "ours": laboratory,
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    loads = []  # of the machine, before each: who else was there
    trainings: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for way, train in ways.items():
            loads.append(os.getloadavg()[0])
            began = time.perf_counter()
            trainings[way] = train()
            seconds[way].append(time.perf_counter() - began)
            print(f"{way}: {seconds[way][-1]:.1f} s", flush=True)
        for name, *losses in zip(map(name_of, jobs()), *trainings.values(), strict=True):
            if not all(same(training, losses[-1]) for training in losses):
                raise RuntimeError(f"{name} came to other losses: {losses}")
    ratios = {way: [a / b for a, b in zip(seconds[way], seconds["ours"], strict=True)] for way in ways if way != "ours"}
    for way, of_rounds in ratios.items():
        print(f"{median(of_rounds):.2f} times as fast as {way} ({min(of_rounds):.2f} to {max(of_rounds):.2f})")
    rows = [
        {"net": name, "variant": variant, "epochs": epochs, **dict(zip(trainings, losses, strict=True))}
        for (name, variant, epochs), *losses in zip(map(name_of, jobs()), *trainings.values(), strict=True)
    ]
    record = {
        "cores": CORES,
        "rounds": options.rounds,
        "ratio": {way: median(of_rounds) for way, of_rounds in ratios.items()},
        "ratios": ratios,
        "seconds": seconds,
        "loads": loads,
    }
    record = {**circumstances(as_module("benchmarks.first_two"), "cpu"), **record, "trainings": rows}
    write_json(options.out / f"first-two-{platform.machine()}.json", record)


if __name__ == "__main__":
    main()

"""Time the laboratory against plain PyTorch, on digits and peaks: twelve trainings, from start to singular vectors.

    python -m benchmarks.first_two [--rounds 3] [--out results/bench]

Plainly: one process for each training (benchmarks/plainly.py), as many at once as there are cores. Ours: the
laboratory with both experiments, its start, measurements and records included. Both take the same steps from the same
weights and must come to the same losses. In turns; a ratio of 4 means that the laboratory needs a quarter of the time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import plainly
from racecar.bench.record import as_module, circumstances, write_json
from racecar.lab import runner
from racecar.lab.engines.base import Plan
from racecar.lab.experiments import experiment
from racecar.lab.jobs import Job, make_jobs
from racecar.lab.results import Store
from racecar.lab.work import Maker

VARIANTS = ("Std", "Ort", "RR")
CORES = len(os.sched_getaffinity(0))
CLOSE = 0.01
"""How far apart two losses may be, relatively; cross-entropies below it are all nothing."""


def jobs() -> list[Job]:
    """Of both experiments with their own settings, one seed; the digits are those that racecar brings along."""
    both = []
    for name, settings in (("digits", {"shipped": True}), ("peaks", {})):
        one = experiment(name)
        both += make_jobs(one, one.Config(**settings), VARIANTS, [plainly.SEED], None)
    return both


def name_of(job: Job) -> tuple[str, str, int]:
    """What the plain program calls a job."""
    config: Any = job.config
    return config.nets[0] if job.experiment.name == "peaks" else "digits", job.variant, config.epochs


def ours(folder: Path) -> list[dict[str, Any]]:
    """The laboratory, in a process of its own."""
    _python("-m", "benchmarks.first_two", "--laboratory", str(folder))
    runs = [Store(folder).get(job.ids["A"]) for job in jobs()]
    return [{key: run.record["curves"][key][-1] for key in ("train_loss", "regulariser")} for run in runs]


def plain() -> list[dict[str, Any]]:
    """One process for each training."""
    with ThreadPoolExecutor(CORES) as pool:
        return list(pool.map(lambda job: json.loads(_python(plainly.__file__, *map(str, name_of(job)))), jobs()))


def _python(*arguments: str) -> str:
    """With one thread for each process, as both sides have as many of these as there are cores."""
    path = os.pathsep.join(filter(None, ["src", ".", os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.PIPE, check=True, env=environment
    ).stdout.decode()


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two trainings came to the same losses."""
    return all(math.isclose(one[key], other[key], rel_tol=CLOSE, abs_tol=1e-4) for key in ("train_loss", "regulariser"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    parser.add_argument("--laboratory", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.laboratory is not None:
        failures = runner.run(jobs(), Plan(options.laboratory, Maker("benchmark", "here")), "here", show=False)
        sys.exit(len(failures))
    seconds: dict[str, list[float]] = {"plain": [], "ours": []}
    loads = []  # of the machine, before each: who else was there
    for _ in range(options.rounds):
        loads.append(os.getloadavg()[0])
        began = time.perf_counter()
        wanted = plain()
        between = time.perf_counter()
        loads.append(os.getloadavg()[0])
        with tempfile.TemporaryDirectory() as folder:
            found = ours(Path(folder))
            seconds["plain"].append(between - began)
            seconds["ours"].append(time.perf_counter() - between)
        different = [name_of(job) for job, a, b in zip(jobs(), wanted, found, strict=True) if not same(a, b)]
        if different:
            raise RuntimeError(f"the two sides came to other losses: {different}")
        print(f"plainly {seconds['plain'][-1]:.1f} s, ours {seconds['ours'][-1]:.1f} s", flush=True)
    ratios = [a / b for a, b in zip(seconds["plain"], seconds["ours"], strict=True)]
    print(f"{median(ratios):.2f} times as fast ({min(ratios):.2f} to {max(ratios):.2f})")
    rows = [
        {"net": name, "variant": variant, "epochs": epochs, "plain": a, "ours": b}
        for (name, variant, epochs), a, b in zip(map(name_of, jobs()), wanted, found, strict=True)
    ]
    made = circumstances(as_module("benchmarks.first_two"), "cpu")
    record = {
        "cores": CORES,
        "rounds": options.rounds,
        "ratio": median(ratios),
        "ratios": ratios,
        "seconds": seconds,
        "loads": loads,
    }
    write_json(options.out / "first-two-cpu.json", {**made, **record, "trainings": rows})


if __name__ == "__main__":
    main()

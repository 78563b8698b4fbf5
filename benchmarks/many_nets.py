"""Time the vmap engine against one net after the other, on the information experiment.

    python -m benchmarks.many_nets [--nets 10 60 120] [--epochs 20] [--rounds 5] [--out results/bench]

Both do the same steps of the same nets in the same run, in turns; a ratio of 3 means that the batched net needs
a third of the time. Recording the batched step once is timed apart: a training of 400 epochs has 2400 steps.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import torch

from racecar.bench.record import as_module, circumstances, write_json
from racecar.lab.experiments import experiment
from racecar.lab.running.jobs import Job, make_jobs
from racecar.lab.running.results import Store
from racecar.lab.running.work import prepare, strength
from racecar.lab.training.steps.vmapped import Batched
from racecar.lab.training.train import Trainer


def jobs(variant: str, count: int, epochs: int) -> list[Job]:
    one = experiment("information")
    return make_jobs(one, one.Config(epochs=epochs), [variant], range(count), None)


def alone(some: list[Job], epochs: int) -> float:
    """Seconds of one training after the other."""
    total = 0.0
    for job in some:
        task = job.experiment.data(job.config, job.seed, None)["A"]
        stage = job.stages[0]
        module = prepare(job, stage, task, Store("nowhere"), "cpu")
        trainer = Trainer(
            module, task, job.config, name="A", seed=job.seed, epochs=epochs,
            loss=job.experiment.loss, coefficient=strength(job, stage),
        )  # fmt: skip
        total += trainer.run().seconds
    return total


def together(some: list[Job]) -> tuple[Batched, float]:
    """The batched net, and the seconds to record its step."""
    stage = some[0].stages[0]
    members = [(job, job.experiment.data(job.config, job.seed, None)["A"]) for job in some]
    modules = [prepare(job, stage, task, Store("nowhere"), "cpu") for job, task in members]
    batch = Batched(members, modules, stage, torch.device("cpu"))
    began = time.perf_counter()
    batch.warm_up()
    return batch, time.perf_counter() - began


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
            ratios, recording = [], 0.0
            for _ in range(options.rounds):
                batch, recording = together(some)
                with tempfile.TemporaryDirectory() as folder:
                    began = time.perf_counter()
                    batch.run(Path(folder) / "state", float("inf"), lambda *_: None)
                    batched = time.perf_counter() - began
                ratios.append(alone(some[:10], options.epochs) * count / min(10, count) / batched)
            row = {
                "variant": variant,
                "nets": count,
                "ratio": median(ratios),
                "ratios": ratios,
                "recording_s": recording,
            }
            print(f"{variant:4} {count:4} nets: {row['ratio']:.1f} times as fast, recording the step {recording:.1f} s")
            rows.append(row)
    made = circumstances(as_module("benchmarks.many_nets"), "cpu")
    settings = {"epochs": options.epochs, "rounds": options.rounds}
    write_json(options.out / "many-nets-cpu.json", {**made, **settings, "rows": rows})


if __name__ == "__main__":
    main()

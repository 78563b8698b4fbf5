"""Few labels, very small: its settings, pictures to train on, and made-up records."""

from dataclasses import replace

import numpy as np

from racecar_lab.experiments import experiment
from racecar_lab.experiments.few_labels import FewLabels
from racecar_lab.experiments.small_net import WIDTHS
from racecar_lab.running.run import Run
from tests.lab.experiments.pictures import write_cifar, write_mnist

FEW = experiment("few-labels")
TINY = FEW.Config(
    images=20, epochs=1, batch=8, labels=(1, 3), draws=2, tune_draws=1, tune_steps=2, tune_lrs=(1e-3,), cost=1.0
)
COUNTS = {"train": 100, "test": 40}


def with_pictures(folder, monkeypatch, kind=FewLabels):
    """A hundred pictures to train on and forty to test on, of either kind, for narrow nets; the folder that they are
    in."""
    rng = np.random.default_rng(0)
    write_mnist(folder, COUNTS, rng)
    write_cifar(folder, COUNTS, rng)
    small = {name: replace(source, counts=COUNTS) for name, source in kind.data_sets.items()}
    monkeypatch.setattr(kind, "data_sets", small)
    for task in WIDTHS:
        monkeypatch.setitem(WIDTHS, task, (4, 8, 12))
    return folder


def record(variant, seed, probe, weight=None, status="finished", id="x", **config):
    metrics = {"source_accuracy": 0.9, "probe_2": probe, "probe_10": probe + 0.1, "tune_2": probe - 0.1}
    if variant == "Std":
        metrics["untrained_2"] = 0.4
    base = {**FEW.Config().to_dict(), **config}
    fields = {"variant": variant, "seed": seed, "weight": weight, "config": base, "stage": "A", "tuned": {}}
    fields |= {"metrics": metrics if status == "finished" else {}, "status": status, "tables": {}, "made": {}}
    return Run({"id": id, **fields, "note": "", "dead": None})

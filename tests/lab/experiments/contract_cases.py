"""Every experiment in its smallest form, and a folder with the data of all of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from racecar_lab.datasets import CIFAR10, MNIST
from racecar_lab.experiments import EXPERIMENTS, experiment, information, mnist, safety
from racecar_lab.experiments.disentangle.judge import trained_judge
from racecar_lab.experiments.disentangle.splitting import digits_task
from racecar_lab.experiments.small_net import WIDTHS
from racecar_lab.experiments.texture_shape import splitting
from racecar_lab.running.job import Job
from racecar_lab.running.jobs import make_jobs
from tests.lab.experiments import few_labels_cases, texture_cases
from tests.lab.experiments.pictures import write_cifar, write_mnist
from tests.lab.experiments.smoke_cases import TINY as SMOKE
from tests.lab.experiments.smoke_cases import TINY_AUTOENCODER as AUTOENCODER
from tests.lab.experiments.smoke_cases import small_data

SLICES = {"grid": False, "epochs": 1, "batch": 20, "precision": "float32"}
SMALL: dict[str, dict[str, Any]] = {
    "digits": {"shipped": True, "epochs": 2},
    "peaks": {"epochs": 2, "nets": ("linear",)},
    "information": {"epochs": 1, "finetune": 2},
    "mnist": {"epochs": 1, "finetune": 1, "batch": 10, "share": 0.22, "cost": 1.0},
    "smoke": SMOKE,
    "smoke-autoencoder": AUTOENCODER,
    "slices": {"grid": False, "epochs": 2},
    "slices-mnist": {**SLICES, "batch": 50},
    "slices-cifar": {**SLICES, "width": 1 / 16},
    "long-training": {"images": 20, "widths": (2, 3, 4), "epochs": 2, "batch": 8, "cost": 1.0},
    "safety": {"design": "one", "images": 20, "epochs": 1, "batch": 10, "labels": (2, 3), "draws": 2, "tests": 20},
    "shift": {"images": 20, "epochs": 1, "batch": 8, "tests": 8},
    "sequences": {"task": "rows", "hidden": 6, "samples": 16, "tests": 8, "epochs": 2, "batch": 8},
    "disentangle": {
        "hidden": 6,
        "channels": (2, 3),
        "epochs": 1,
        "batch": 40,
        "samples": 24,
        "inverted": 4,
        "inversion_steps": 2,
        "judge_epochs": 1,
        "judge_accuracy": 0.0,
        "encoder_cost": 1.0,
    },
    "hindcast": {"size": 16, "width": 3, "samples": 24, "tests": 3, "epochs": 1, "batch": 8},
    "streams": {"images": 24, "batch": 5, "tests": 7, "tasks": 4, "passes": 2},
}
CONFIGS: dict[str, Any] = {name: experiment(name).Config(**small) for name, small in SMALL.items()}
CONFIGS |= {"few-labels": few_labels_cases.TINY, "texture-shape": replace(texture_cases.TINY, fold=0)}
TRAINED = [name for name, one in EXPERIMENTS.items() if not one.engine]
"""Without the streams, whose engine has tests of its own in cli/test_streams.py."""
SEARCHED = [name for name in TRAINED if EXPERIMENTS[name].search is not None]
DIGITS, COLOURS = {"train": 100, "test": 50}, {"train": 40, "test": 20}


@contextmanager
def data_of_all(folder: Path) -> Iterator[Path]:
    """A data folder in which every experiment finds its data, and nothing kept of another one."""
    rng = np.random.default_rng(0)
    caches = mnist.pictures, safety._tasks, splitting.pictures, digits_task, trained_judge
    with small_data(folder), pytest.MonkeyPatch.context() as patch:
        for source, counts in ((MNIST, DIGITS), (CIFAR10, COLOURS)):
            for split, count in counts.items():
                patch.setitem(source.counts, split, count)  # type: ignore[arg-type]
        write_mnist(folder, DIGITS, rng)
        write_cifar(folder, COLOURS, rng)
        texture_cases.write(folder, patch)
        patch.setattr(information, "SWEEP", (30,))
        patch.setattr(mnist, "LAYOUT", (6, "M", 8, "M", 12, "M"))
        for task in WIDTHS:
            patch.setitem(WIDTHS, task, (4, 8, 12))
        for cached in caches:
            cached.cache_clear()
        yield folder
    for cached in caches:
        cached.cache_clear()


WHOLE: dict[str, dict[str, Any]] = {
    "safety": {
        "design": "cover",
        "losses": tuple(f"both:relative:{mode}" for mode in ("full", "layerwise", "input")),
        "weights": (0.1,),
        "depths": (3,),
        "norms": ("none",),
    }
}
"""Further fields of runs with every variant."""


def jobs_of(name: str, folder: Path, variants: tuple[str, ...], **changes: Any) -> list[Job]:
    pretraining = {"Pre": [1.0]} if "Pre" in variants else {}
    return make_jobs(experiment(name), replace(CONFIGS[name], **changes), variants, [0], folder, weights=pretraining)

"""Both smoke experiments, very small."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from racecar_lab.experiments import experiment
from racecar_lab.experiments.smoke import splitting
from racecar_lab.experiments.smoke_autoencoder import splitting as real_splitting
from racecar_lab.running.job import Job
from racecar_lab.running.jobs import make_jobs
from tests.lab.smoke_data import small

SMOKE, AUTOENCODER = experiment("smoke"), experiment("smoke-autoencoder")
TINY: dict[str, Any] = {
    "epochs": 1,
    "widths": (2, 3, 3, 2, 2),
    "critic_widths": (2, 3),
    "share": 0.034,
    "tests": 1,
    "batch": 4,
}
TINY_AUTOENCODER: dict[str, Any] = {**TINY, "autoencoder_epochs": 1, "pictures": 8, "looks": 2}


def jobs(folder, variants=("Std", "RR"), seeds=(0,), **config: Any) -> list[Job]:
    return make_jobs(SMOKE, SMOKE.Config(**{**TINY, **config}), variants, seeds, folder)


def autoencoder_jobs(folder, variants=("Std", "RR"), **config: Any) -> list[Job]:
    made = AUTOENCODER.Config(**{**TINY_AUTOENCODER, **config})
    return make_jobs(AUTOENCODER, made, variants, [0], folder)


@contextmanager
def small_data(folder: Path) -> Iterator[Path]:
    """A data folder for both, and nothing kept of another one."""
    with pytest.MonkeyPatch.context() as patch:
        _forget()
        yield small(patch, folder)
    _forget()


def _forget() -> None:
    for cached in (splitting.load_frames, real_splitting.load_pictures):
        cached.cache_clear()

"""Both smoke experiments, very small."""

from typing import Any

from racecar.lab.experiments import experiment
from racecar.lab.running.jobs import Job, make_jobs

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

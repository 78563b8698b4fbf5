"""Real smoke to train and to test on: the plume by view and time, photographs by their place in the file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets import smoke_real
from racecar_lab.experiment import Split, Task
from racecar_lab.experiments.smoke.config import TESTED
from racecar_lab.experiments.smoke.splitting import spread
from racecar_lab.experiments.smoke_autoencoder.config import SmokeAutoencoderConfig

VIEWS = {"train": (0, 1, 2), "valid": (3,), "test": (4,)}
"""Cameras of the plume."""
EARLY = 2 / 3
"""Of the frames, the first ones: those that are trained on. What is measured is later, and seen by another camera."""
BLOCKS = {"train": (0.0, 0.5), "valid": (0.5, 0.7), "test": (0.7, 1.0)}
"""Of the photographs, in their order: neighbours may be crops of one picture, and stay together."""


def real(config: SmokeAutoencoderConfig, folder: Path | None) -> dict[str, Task]:
    """B2, the plume, and B3, the photographs: (N, 3, 64, 64) in [0, 1]; labels are views, or 0. A search sees what is
    between training and test data, which stands for both then. Of what is held out, no more is measured than of the
    simulations."""
    (plume, view, frame), (photographs, none) = loaded(folder)
    late = frame >= round(EARLY * (int(frame.max()) + 1))
    parts: dict[str, dict[str, Split]] = {"B2": {}, "B3": {}}
    for name in ("train", "valid", "test"):
        own = torch.isin(view, torch.tensor(VIEWS[name])) & (late ^ (name == "train"))
        some = own.nonzero()[:, 0]
        low, high = (round(end * len(photographs)) for end in BLOCKS[name])
        others = torch.arange(low, high)
        most = config.pictures if name == "train" else TESTED * config.tests
        some, others = spread(some, most), spread(others, most)
        parts["B2"][name] = Split(plume[some], view[some])
        parts["B3"][name] = Split(photographs[others], none[others])
    seen = "valid" if config.valid else "test"
    return {
        name: Task(part["train"], part[seen], part["valid"] if config.valid else None) for name, part in parts.items()
    }


@lru_cache(maxsize=1)
def loaded(folder: Path | None) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """All there is: a process that does many jobs keeps it."""
    plume, view = smoke_real.SMOKE_REAL.load(folder, "plume")
    photographs, none = smoke_real.SMOKE_REAL.load(folder, "photographs")
    return (plume.float() / 255, view, smoke_real.frames(folder)), (photographs.float() / 255, none)

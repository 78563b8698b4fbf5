"""Split of real smoke into training and test pictures: the plume by view and time, photographs by their order."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets import smoke_real
from racecar_lab.experiment import Split, Task
from racecar_lab.experiments.smoke.config import TEST_PLUMES
from racecar_lab.experiments.smoke.splitting import evenly_spaced
from racecar_lab.experiments.smoke_autoencoder.config import SmokeAutoencoderConfig

VIEWS = {"train": (0, 1, 2), "valid": (3,), "test": (4,)}
"""Training, validation and test set → numbers of the cameras from whose views of the real plume it has frames."""
EARLY = 2 / 3
"""Share of the real plume's frames, from the first one on, that is trained on. Test frames are later ones, from another
camera."""
BLOCKS = {"train": (0.0, 0.5), "valid": (0.5, 0.7), "test": (0.7, 1.0)}
"""Training, validation and test set → where its block of the photographs begins and ends, as shares of their number.
The blocks are contiguous, as neighbours may be crops of one picture."""


def real_tasks(config: SmokeAutoencoderConfig, folder: Path | None) -> dict[str, Task]:
    """Tasks B2, the plume, and B3, the photographs: pictures (N, 3, 64, 64) in [0, 1]. A label is the
    index of the camera that took the picture in B2, and 0 in B3.

    In a search the validation pictures replace the test pictures. The test set is cut to at most the size
    of that of the simulations.
    """
    (plume, view, frame), (photographs, labels) = load_pictures(folder)
    late = frame >= round(EARLY * (int(frame.max()) + 1))
    splits: dict[str, dict[str, Split]] = {"B2": {}, "B3": {}}
    for name in ("train", "valid", "test"):
        in_split = torch.isin(view, torch.tensor(VIEWS[name])) & (late ^ (name == "train"))
        low, high = (round(end * len(photographs)) for end in BLOCKS[name])
        limit = config.pictures if name == "train" else TEST_PLUMES * config.tests
        of_plume = evenly_spaced(in_split.nonzero()[:, 0], limit)
        of_photographs = evenly_spaced(torch.arange(low, high), limit)
        splits["B2"][name] = Split(plume[of_plume], view[of_plume])
        splits["B3"][name] = Split(photographs[of_photographs], labels[of_photographs])
    if config.valid:
        return {task: Task(split["train"], split["valid"], split["valid"]) for task, split in splits.items()}
    return {task: Task(split["train"], split["test"]) for task, split in splits.items()}


@lru_cache(maxsize=1)
def load_pictures(folder: Path | None) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Load the real smoke: pictures, camera numbers and frame numbers of the plume, and photographs with labels; cached
    for further jobs of the process."""
    plume, view = smoke_real.SMOKE_REAL.load(folder, "plume")
    photographs, labels = smoke_real.SMOKE_REAL.load(folder, "photographs")
    return (plume.float() / 255, view, smoke_real.frames(folder)), (photographs.float() / 255, labels)

"""Split of simulated smoke into training and test frames; no plume has frames in both."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets import smoke
from racecar_lab.experiment import Split, Task
from racecar_lab.experiments.smoke.config import TRAINING_PLUMES, SmokeConfig
from racecar_lab.training import rng


def simulated_task(config: SmokeConfig, seed: int, folder: Path | None) -> Task:
    """Make the task: pictures of high resolution, (N, 1, 64, 64) in [0, 1], labelled by the number of their plume.

    The test plumes are always the last ones, so that no search sees them through the split of another seed. The seed
    chooses training frames from the others. A search holds out some of these plumes, which then replace the test ones.
    """
    frames, plumes = load_frames(folder)
    order = torch.randperm(TRAINING_PLUMES, generator=rng.generator("smoke", seed)).tolist()
    held_out = round(config.valid * TRAINING_PLUMES)
    if config.valid and not 0 < held_out < TRAINING_PLUMES:
        raise ValueError(
            f"valid={config.valid}: of {TRAINING_PLUMES} plumes {held_out} would be held out; set another share"
        )
    train = torch.cat([(plumes == plume).nonzero()[:, 0] for plume in sorted(order[held_out:])])
    count = round(config.share * len(frames) * (TRAINING_PLUMES - held_out) / TRAINING_PLUMES)
    if not 2 <= count <= len(train):
        raise ValueError(f"share={config.share}: {count} frames of the {len(train)} there are; set another share")
    shuffled = train[torch.randperm(len(train), generator=rng.generator("smoke frames", seed))]
    chosen = shuffled[:count].sort().values
    test_plumes = sorted(order[:held_out]) if held_out else range(TRAINING_PLUMES, int(plumes.max()) + 1)
    test = torch.cat([evenly_spaced((plumes == plume).nonzero()[:, 0], config.tests) for plume in test_plumes])
    split = Split(frames[test], plumes[test])
    return Task(Split(frames[chosen], plumes[chosen]), split, split if held_out else None)


def evenly_spaced(values: Tensor, count: int) -> Tensor:
    """Pick ``count`` of the values (N,), evenly spaced; all of them, if there are no more."""
    if count >= len(values):
        return values
    return values[torch.linspace(0, len(values) - 1, count).round().long()]


@lru_cache(maxsize=1)
def load_frames(folder: Path | None) -> tuple[Tensor, Tensor]:
    """Load frames (N, 1, 64, 64) in [0, 1] and the numbers of their plumes (N,); cached for further jobs of the
    process."""
    frames, plumes = smoke.SMOKE.load(folder, "all")
    return frames.float() / 255, plumes

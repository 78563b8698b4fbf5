"""Frames to train and to test on, by plume: no plume has frames in both."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets import smoke
from racecar_lab.experiment import Split, Task
from racecar_lab.experiments.smoke.config import KEPT, SmokeConfig
from racecar_lab.training import rng


def simulated(config: SmokeConfig, seed: int, folder: Path | None) -> Task:
    """High resolution, (N, 1, 64, 64) in [0, 1]; labels are the plumes.

    The last plumes are tested on, always the same ones, so that no search sees them through another seed's split. Of
    the others the seed chooses frames; a search holds out plumes of them, which then stand for the test plumes, too.
    """
    frames, plumes = loaded(folder)
    order = torch.randperm(KEPT, generator=rng.generator("smoke", seed)).tolist()
    held = round(config.valid * KEPT)
    if config.valid and not 0 < held < KEPT:
        raise ValueError(f"valid={config.valid}: of {KEPT} plumes {held} would be held out; set another share")
    train = torch.cat([(plumes == one).nonzero()[:, 0] for one in sorted(order[held:])])
    count = round(config.share * len(frames) * (KEPT - held) / KEPT)
    if not 2 <= count <= len(train):
        raise ValueError(f"share={config.share}: {count} frames of the {len(train)} there are; set another share")
    mixed = train[torch.randperm(len(train), generator=rng.generator("smoke frames", seed))]
    chosen = mixed[:count].sort().values
    tested = order[:held] if held else range(KEPT, int(plumes.max()) + 1)
    test = torch.cat([spread((plumes == one).nonzero()[:, 0], config.tests) for one in sorted(tested)])
    split = Split(frames[test], plumes[test])
    return Task(Split(frames[chosen], plumes[chosen]), split, split if held else None)


def spread(some: Tensor, count: int) -> Tensor:
    """So many of them, evenly; all, if there are no more."""
    if count >= len(some):
        return some
    return some[torch.linspace(0, len(some) - 1, count).round().long()]


@lru_cache(maxsize=1)
def loaded(folder: Path | None) -> tuple[Tensor, Tensor]:
    """Frames and their plumes: a process that does many jobs keeps them."""
    frames, plumes = smoke.SMOKE.load(folder, "all")
    return frames.float() / 255, plumes

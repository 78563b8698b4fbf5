"""Real smoke, 64 × 64 colour: one plume of ScalarFlow seen by five cameras, and crops of photographs.

The plume's labels are the views 0 to 4, 120 frames each: split it by view or by time, never at random, because it is
one plume. The photographs are noisy and have no labels (all 0).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets.arrays import channels_first, class_numbers, read_npz
from racecar_lab.datasets.base import File, Source

VIEWS = 5


def _read(paths: tuple[Path, ...], split: str) -> tuple[Tensor, ...]:
    """Pictures and labels of a split; for the split "plume" there is a third column, each picture's frame number."""
    (path,) = paths
    if split == "plume":
        pictures, view, frame = read_npz(path, "scalarflow", "view", "frame")
        images = channels_first(pictures, path)
        return images, class_numbers(view, len(images), VIEWS, path), torch.from_numpy(frame).long()
    images = channels_first(read_npz(path, "smokecrop")[0], path)
    return images, torch.zeros(len(images), dtype=torch.int64)


def frames(folder: str | Path | None) -> Tensor:
    """The frame number of each picture of the plume, which is its place in time, int64 (600,)."""
    return SMOKE_REAL.columns(folder, "plume")[2]


SMOKE_REAL = Source(
    name="smoke-real",
    title="Real smoke, 64 × 64 colour: one plume in 5 views, and photographs",
    homepage="https://ge.in.tum.de/publications/2019-scalarflow-eckert/",
    licence="none stated by the sources",
    citation="Eckert, Um, Thuerey: ScalarFlow. 2019; Yu et al.: Inferring hybrid neural fluid fields. 2023.",
    counts={"plume": 600, "photographs": 2170},
    forms=(
        (
            File(
                "smoke_real_64.npz",
                ("plume", "photographs"),
                21_437_637,
                "sha256:480f17270e0ea4f5edc9dfc4d4b52a57efe61f1675576432762ced6d6eb5f033",
            ),
        ),
    ),
    read=_read,
    obtain="it is not published, because its sources state no licence (github.com/y-zheng18/HyFluid, "
    "github.com/liuzifan/fire_smoke_datasets): ask the developers of racecar for smoke_real_64.npz and put it into "
    "the data folder",
)

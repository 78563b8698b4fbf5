"""Simulated smoke, 64 × 64 grey: 20 buoyant plumes of 120 frames, which ``racecar data make smoke`` computes.

The label of a frame is its plume, 0 to 19; a plume's frames follow one another in time. Split by plume: frames of one
plume look alike.
"""

from __future__ import annotations

from pathlib import Path

import torch

from racecar_lab.datasets.arrays import read_npz
from racecar_lab.datasets.base import DataError, File, Samples, Source, data_folder
from racecar_lab.datasets.checksum import remembered_digest

PLUMES, FRAMES, SIZE = 20, 120, 64
NAME = "smoke_simulated_64.npz"


def _make(path: Path) -> None:
    from racecar_lab.datasets.plumes import write

    write(path, PLUMES, FRAMES, SIZE)


def _read(paths: tuple[Path, ...], split: str) -> Samples:
    """Frames, uint8 (plumes · frames, 1, H, W), and the number of each frame's plume, int64 (plumes · frames,)."""
    (path,) = paths
    density = torch.from_numpy(read_npz(path, "density")[0])
    if density.dtype != torch.uint8 or density.dim() != 4:
        raise DataError(f"{path} holds {density.dtype} {tuple(density.shape)} instead of plumes × frames in bytes")
    plumes, frames = density.shape[:2]
    return density.flatten(0, 1).unsqueeze(1), torch.arange(plumes).repeat_interleave(frames)


def checksum(folder: str | Path | None) -> str:
    """The checksum of the file of simulated smoke, which tells apart data of different versions of PhiFlow; empty if
    there is no file."""
    path = data_folder(folder) / NAME
    return f"sha256:{remembered_digest(path, 'sha256')}" if path.exists() else ""


SMOKE = Source(
    name="smoke",
    title="Simulated smoke, 64 × 64 grey: 20 buoyant plumes of 120 frames",
    homepage="https://github.com/tum-pbs/PhiFlow",
    licence="made on your machine",
    citation="Holl, Thuerey: Φ-Flow (PhiFlow): differentiable simulations. 2024.",
    counts={"all": PLUMES * FRAMES},
    forms=((File(NAME, ("all",)),),),
    read=_read,
    obtain="it is made on your machine: racecar data make smoke",
    make=_make,
)

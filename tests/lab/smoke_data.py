"""Simulated and real smoke in small, in the layout of the files: discs that rise and grow."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from racecar_lab.datasets import base, smoke, smoke_real
from racecar_lab.datasets.smoke import NAME

SIDE = 48
"""Of pictures: the smallest whose quarter is as large as SSIM's window."""


def discs(plumes: int, frames: int, size: int) -> np.ndarray:
    """uint8 (plumes, frames, size, size): brighter in the middle, each plume at another place."""
    rows, columns = np.mgrid[:size, :size] / size
    t = np.arange(frames)[None, :, None, None] / frames
    x = np.linspace(0.3, 0.7, plumes)[:, None, None, None]
    away = np.hypot(columns - x, rows - (0.8 - 0.5 * t))
    return (255 * np.clip(1.5 - away / (0.1 + 0.1 * t), 0, 1)).astype(np.uint8)


def write_simulated(path: Path, plumes: int = 20, frames: int = 12, size: int = SIDE) -> None:
    np.savez_compressed(path, density=discs(plumes, frames, size), seed=0)


def write_real(path: Path, frames: int = 8, photographs: int = 20) -> None:
    """Five views of one plume, and photographs."""
    seen = discs(5, frames, SIDE).reshape(-1, SIDE, SIDE, 1) // 2
    coloured = np.concatenate([seen, seen // 2, seen // 3], 3)
    noise = np.random.default_rng(0).integers(0, 256, (photographs, SIDE, SIDE, 3), dtype=np.uint8)
    view, frame = np.repeat(np.arange(5, dtype=np.uint8), frames), np.tile(np.arange(frames, dtype=np.uint8), 5)
    np.savez(path, scalarflow=coloured, view=view, frame=frame, smokecrop=noise)


def small(monkeypatch: pytest.MonkeyPatch, folder: Path, frames: int = 12, photographs: int = 20) -> Path:
    """A data folder with both, which the sources take for whole."""
    write_simulated(folder / NAME, frames=frames)
    write_real(folder / "smoke_real_64.npz", 8, photographs)
    for module, name, counts in (
        (smoke, "SMOKE", {"all": 20 * frames}),
        (smoke_real, "SMOKE_REAL", {"plume": 40, "photographs": photographs}),
    ):
        one: base.Source = getattr(module, name)
        monkeypatch.setattr(module, name, replace(one, counts=counts))
    return folder

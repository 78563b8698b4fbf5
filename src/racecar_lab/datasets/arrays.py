"""Reading of NumPy's npy and npz files, and checks of pictures and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from racecar.support.extras import need
from racecar_lab.datasets.base import DataError, reading


def read_npy(path: Path) -> Any:
    """The array in an npy file."""
    numpy = need("numpy", "lab")
    with reading(path, "npy file of numbers"):
        return numpy.load(path, allow_pickle=False)


def read_npz(path: Path, *names: str) -> list[Any]:
    """Arrays in an npz file, by name."""
    numpy = need("numpy", "lab")
    kind = f"npz file with {', '.join(names)}"
    with reading(path, kind), open(path, "rb") as file, numpy.load(file, allow_pickle=False) as arrays:
        return [arrays[name] for name in names]


def channels_first(pictures: Any, path: Path) -> Tensor:
    """Pictures (N, H, W, 3) as (N, 3, H, W), uint8."""
    if pictures.dtype != "uint8" or pictures.ndim != 4 or pictures.shape[3] != 3:
        raise DataError(f"{path} holds {pictures.dtype} {pictures.shape} instead of colour pictures in bytes")
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()


def class_numbers(labels: Any, count: int, classes: int, path: Path) -> Tensor:
    """Labels as int64 (N,); checks that there is one for each of ``count`` pictures, below the number of classes."""
    labels = torch.as_tensor(labels)
    if labels.shape != (count,) or labels.is_floating_point():
        raise DataError(f"{path} holds {labels.dtype} {tuple(labels.shape)} as labels of {count} pictures")
    if count and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise DataError(f"{path} has labels from {int(labels.min())} to {int(labels.max())}, not 0 to {classes - 1}")
    return labels.long()

"""Reading of NumPy's npy and npz files as tensors, with checks of their content."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from racecar.support.extras import need
from racecar_lab.datasets.base import DataError, words


def read_npy(path: Path) -> Tensor:
    """The array in an npy file."""
    numpy = need("numpy", "lab")
    try:
        return torch.from_numpy(numpy.load(path, allow_pickle=False))
    except Exception as error:  # damaged files raise errors of many types
        raise DataError(f"{path} is damaged or no npy file of numbers ({words(error)})") from error


def read_npz(path: Path, *names: str) -> tuple[Tensor, ...]:
    """Arrays in an npz file, by name."""
    numpy = need("numpy", "lab")
    try:
        with open(path, "rb") as file, numpy.load(file, allow_pickle=False) as arrays:
            return tuple(torch.from_numpy(arrays[name]) for name in names)
    except Exception as error:  # damaged files raise errors of many types
        raise DataError(f"{path} is damaged or no npz file with {', '.join(names)} ({words(error)})") from error


def channels_first(pictures: Tensor, path: Path) -> Tensor:
    """Pictures (N, H, W, 3) as (N, 3, H, W), uint8."""
    if pictures.dtype != torch.uint8 or pictures.dim() != 4 or pictures.shape[3] != 3:
        raise DataError(f"{path} holds {pictures.dtype} {tuple(pictures.shape)} instead of colour pictures in bytes")
    return pictures.permute(0, 3, 1, 2).contiguous()


def class_numbers(labels: Tensor, pictures: Tensor, classes: int, path: Path) -> Tensor:
    """Labels as int64 (N,); checks that there is one for each picture, below the number of classes."""
    if labels.shape != pictures.shape[:1] or labels.is_floating_point():
        raise DataError(f"{path} holds {labels.dtype} {tuple(labels.shape)} as labels of {len(pictures)} pictures")
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise DataError(f"{path} has labels from {int(labels.min())} to {int(labels.max())}, not 0 to {classes - 1}")
    return labels.long()

"""Reading of MNIST's idx format: a header with the shape, then bytes; possibly compressed by gzip."""

from __future__ import annotations

import gzip
import struct
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets.arrays import class_numbers
from racecar_lab.datasets.base import DataError, Samples, reading

BYTES = 0x08
"""The code of unsigned bytes in the idx format, the only type in MNIST."""
LARGEST = 2**28
"""Maximal number of bytes of an array, five times that of MNIST: a small compressed file may hold more than fits into
memory."""


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The array in an idx file, uint8. Only as many bytes are read as the header specifies."""
    start = 4 + 4 * dimensions
    with reading(path, "idx file"), gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        header = file.read(start)
        if header[:4] != bytes((0, 0, BYTES, dimensions)) or len(header) < start:
            raise DataError(f"{path} is no idx file of bytes with {dimensions} dimensions")
        shape = struct.unpack(f">{dimensions}I", header[4:])
        if prod(shape) > LARGEST:
            raise DataError(f"{path} is too large: its header says {prod(shape)} bytes, at most {LARGEST} are read")
        content = bytearray(file.read(prod(shape) + 1))
        if len(content) != prod(shape):
            more = "more" if len(content) > prod(shape) else f"{len(content)}"
            raise DataError(f"{path} has {more} bytes of data, its header says {prod(shape)}")
        return torch.frombuffer(content, dtype=torch.uint8).reshape(shape)


def read_pair(images: Path, labels: Path) -> Samples:
    """Grey pictures of ten classes, uint8 (N, 1, H, W), and their labels, int64 (N,), from two idx files."""
    x, y = read_idx(images, 3), read_idx(labels, 1)
    return x[:, None], class_numbers(y, len(x), 10, labels)

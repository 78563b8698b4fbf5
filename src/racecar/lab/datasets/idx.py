"""The idx format of MNIST: a header that says the shape, then bytes; may be compressed by gzip."""

from __future__ import annotations

import gzip
import struct
import zlib
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from racecar.lab.datasets.base import DataError, words

BYTES = 0x08
"""The code of unsigned bytes, the only kind of number in MNIST."""


def read_idx(path: Path, dimensions: int) -> Tensor:
    """The array in an idx file, uint8."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            content = file.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged or truncated ({words(error)})") from error
    start = 4 + 4 * dimensions
    if content[:4] != bytes((0, 0, BYTES, dimensions)) or len(content) < start:
        raise DataError(f"{path} is no idx file of bytes with {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != prod(shape):
        raise DataError(f"{path} has {len(content)} bytes, its header says {start + prod(shape)}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)[start:].reshape(shape)


def read_pair(images: Path, labels: Path) -> tuple[Tensor, Tensor]:
    """Grey pictures, uint8 (N, 1, H, W), and their labels, int64 (N,), from two idx files."""
    x, y = read_idx(images, 3), read_idx(labels, 1)
    if len(x) != len(y):
        raise DataError(f"{labels} has {len(y)} labels for the {len(x)} pictures of {images.name}")
    return x[:, None], y.long()

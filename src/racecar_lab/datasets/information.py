"""var_u.mat, the data with which Shwartz-Ziv and Tishby studied the information plane.

All 4096 patterns of 12 bits, with fixed labels, p(y = 1) = 0.517. The experiment splits them.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import torch

from racecar.support.extras import need
from racecar_lab.datasets.arrays import class_numbers
from racecar_lab.datasets.base import DataError, File, Samples, Source, reading

BITS = 12


def _read(paths: tuple[Path, ...], split: str) -> Samples:
    """Patterns, uint8 (4096, 12), and labels, int64 (4096,)."""
    (path,) = paths
    scipy_io = need("scipy.io", "lab")
    with reading(path, "MATLAB file with F and y"):
        content = scipy_io.loadmat(BytesIO(path.read_bytes()), variable_names=["F", "y"])
        patterns, labels = torch.from_numpy(content["F"]), content["y"].flatten()
    if patterns.dim() != 2 or patterns.shape[1] != BITS or patterns.dtype != torch.uint8 or bool((patterns > 1).any()):
        raise DataError(f"{path} holds F {tuple(patterns.shape)} instead of patterns of {BITS} bits")
    return patterns.contiguous(), class_numbers(labels, len(patterns), 2, path)


INFORMATION = Source(
    name="information",
    title="var_u.mat, 4096 patterns of 12 bits, for the information plane",
    homepage="https://github.com/ravidziv/IDNNs",
    licence="non-commercial, no redistribution",
    citation="Shwartz-Ziv, Tishby: Opening the black box of deep neural networks via information. 2017.",
    counts={"all": 2**BITS},
    forms=(
        (
            File(
                "var_u.mat",
                ("all",),
                1003,
                "sha256:0ba9551878a855396a8de0cbaae620788ede1e7b1eb2b8373bbe017d5ea02036",
            ),
        ),
    ),
    read=_read,
    obtain="its licence does not let us pass it on: read the terms at https://github.com/ravidziv/IDNNs, take "
    "data/var_u.mat from there and put it into the data folder",
)

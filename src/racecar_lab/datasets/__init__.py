"""The data sets of the experiments, in their publishers' layouts; each has a module of its own."""

from __future__ import annotations

from difflib import get_close_matches

from racecar_lab.datasets.base import DataError, Download, File, Source, data_folder
from racecar_lab.datasets.checksum import Checked, check, other_files
from racecar_lab.datasets.cifar import CIFAR10, CIFAR100
from racecar_lab.datasets.cifar10_1 import CIFAR10_1
from racecar_lab.datasets.fetching import fetch, make
from racecar_lab.datasets.information import INFORMATION
from racecar_lab.datasets.mnist import MNIST
from racecar_lab.datasets.shift import SHIFT
from racecar_lab.datasets.smoke import SMOKE
from racecar_lab.datasets.smoke_real import SMOKE_REAL
from racecar_lab.datasets.texture_shape import TEXTURE_SHAPE

__all__ = [
    "CIFAR10",
    "CIFAR10_1",
    "CIFAR100",
    "INFORMATION",
    "MNIST",
    "SHIFT",
    "SMOKE",
    "SMOKE_REAL",
    "SOURCES",
    "TEXTURE_SHAPE",
    "Checked",
    "DataError",
    "Download",
    "File",
    "Source",
    "check",
    "data_folder",
    "fetch",
    "make",
    "other_files",
    "source",
]

SOURCES: dict[str, Source] = {
    data_set.name: data_set
    for data_set in (MNIST, CIFAR10, CIFAR100, CIFAR10_1, SHIFT, TEXTURE_SHAPE, SMOKE, SMOKE_REAL, INFORMATION)
}
"""All data sets by name."""


def source(name: str) -> Source:
    """The data set of that name; ValueError if there is none."""
    if name not in SOURCES:
        close = get_close_matches(name, SOURCES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(SOURCES)}"
        raise ValueError(f"unknown data set {name!r}: {hint}")
    return SOURCES[name]

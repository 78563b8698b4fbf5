"""CIFAR-10.1 (v6): 2000 new test pictures for models trained on CIFAR-10; 200 of each class, no training split.

Checksums are those of TensorFlow Datasets.
"""

from __future__ import annotations

from pathlib import Path

from racecar_lab.datasets.arrays import channels_first, class_numbers, read_npy
from racecar_lab.datasets.base import Download, File, Samples, Source

REPOSITORY = "https://github.com/modestyachts/CIFAR-10.1"
FILES = (
    ("cifar10.1_v6_data.npy", 6_144_128, "sha256:2997188e5816f5bd545dc77771b6227828c28146049fcecf3fa10775474cacc6"),
    ("cifar10.1_v6_labels.npy", 8_128, "sha256:ae40beda001693674edc94d925ee8268cfe68905f8f9aff800c8dcdfcd6c9448"),
)


def _read(paths: tuple[Path, ...], split: str) -> Samples:
    data, labels = paths
    images = channels_first(read_npy(data), data)
    return images, class_numbers(read_npy(labels), len(images), 10, labels)


CIFAR10_1 = Source(
    name="cifar10.1",
    title="CIFAR-10.1 v6, a new test set for CIFAR-10",
    homepage=REPOSITORY,
    licence="MIT",
    citation="Recht, Roelofs, Schmidt, Shankar: Do CIFAR-10 classifiers generalize to CIFAR-10? 2018.",
    counts={"test": 2000},
    forms=tuple(
        tuple(File(f"{folder}{name}", ("test",), size, checksum) for name, size, checksum in FILES)
        for folder in ("", "CIFAR-10.1/datasets/")  # the second is that of a clone of the repository
    ),
    read=_read,
    downloads=tuple(
        Download((f"{REPOSITORY}/raw/master/datasets/{name}",), name, size, checksum) for name, size, checksum in FILES
    ),
)

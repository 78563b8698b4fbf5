"""A shift test of our own for models trained on CIFAR-10. It is not CIFAR-10.1, and tables must say so.

2100 natural pictures of seven CIFAR-10 classes (no airplane, deer or horse), chosen from Tiny-ImageNet and brought to
32 × 32. Labels are those of CIFAR-10. There is a test split only.
"""

from __future__ import annotations

from pathlib import Path

from racecar_lab.datasets.arrays import channels_first, class_numbers, read_npz
from racecar_lab.datasets.base import File, Samples, Source


def _read(paths: tuple[Path, ...], split: str) -> Samples:
    (path,) = paths
    x, y = read_npz(path, "x", "y")
    images = channels_first(x, path)
    return images, class_numbers(y, len(images), 10, path)


SHIFT = Source(
    name="shift",
    title="A shift test of our own (not CIFAR-10.1), 7 classes of CIFAR-10",
    homepage="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    licence="ImageNet's: non-commercial research",
    citation="Le, Yang: Tiny ImageNet visual recognition challenge. 2015.",
    counts={"test": 2100},
    forms=(
        (
            File(
                "cifar10_shift_32.npz",
                ("test",),
                5_993_879,
                "sha256:9b3e1e411d9a4b3757986e2d1ddb08b5551df1005547502c858923a157ea9a39",
            ),
        ),
    ),
    read=_read,
    obtain="it is not published, because ImageNet's terms do not allow it: ask the developers of racecar for "
    "cifar10_shift_32.npz and put it into the data folder",
)

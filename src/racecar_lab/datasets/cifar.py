"""CIFAR-10 and CIFAR-100: 32 × 32 colour pictures of 10 and of 100 kinds of things.

The binary version is preferred; the python version, which consists of pickles, is read if only that is there. Checksums
of the archives are those of the home page and of TensorFlow Datasets, those of the pickles torchvision's, and those of
the binary files of CIFAR-10 are of the files in the home page's archive. For the binary files of CIFAR-100 none are
published, only for their archive. The official split is kept: 50 000 to train, 10 000 to test.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets.arrays import class_numbers
from racecar_lab.datasets.base import DataError, Download, File, Samples, Source
from racecar_lab.datasets.unpickle import read_pickle

PIXELS = 3 * 32 * 32
HOME = "https://www.cs.toronto.edu/~kriz/"
CITATION = "Krizhevsky: Learning multiple layers of features from tiny images. 2009."
LICENCE = "none stated; cite the report"
COUNTS = {"train": 50_000, "test": 10_000}


def read_binary(path: Path, classes: int) -> Samples:
    """A file of the binary version: for each picture a byte for the label (two, coarse and fine, for 100 classes) and
    3072 bytes for the pixels."""
    content, label_bytes = path.read_bytes(), 2 if classes == 100 else 1
    if not content or len(content) % (label_bytes + PIXELS):
        raise DataError(f"{path} has {len(content)} bytes, no multiple of {label_bytes + PIXELS}: it is truncated")
    rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, label_bytes + PIXELS)
    return _pictures(rows[:, label_bytes:], rows[:, label_bytes - 1], classes, path)


def read_python(path: Path, classes: int) -> Samples:
    """A file of the python version, a pickled dict."""
    content = read_pickle(path)
    data, labels = content.get(b"data"), content.get(b"fine_labels" if classes == 100 else b"labels")
    if not isinstance(data, Tensor) or data.dim() != 2 or data.shape[1] != PIXELS:
        raise DataError(f"{path} has no array 'data' of N × {PIXELS} bytes")
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{path} has no list of labels")
    return _pictures(data, torch.tensor(labels, dtype=torch.int64), classes, path)


def _pictures(pixels: Tensor, labels: Tensor, classes: int, path: Path) -> Samples:
    return pixels.reshape(-1, 3, 32, 32).contiguous(), class_numbers(labels, pixels, classes, path)


def _read(classes: int, paths: tuple[Path, ...], split: str) -> Samples:
    parts = [(read_binary if path.suffix == ".bin" else read_python)(path, classes) for path in paths]
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


def _form(folder: str, size: int | None, kind: str, files: dict[str, str]) -> tuple[File, ...]:
    return tuple(
        File(f"{folder}/{name}", ("test" if name.startswith("test") else "train",), size, kind and f"{kind}:{checksum}")
        for name, checksum in files.items()
    )


CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10, 10 kinds of things, 32 × 32 colour",
    homepage=f"{HOME}cifar.html",
    licence=LICENCE,
    citation=CITATION,
    counts=COUNTS,
    forms=(
        _form(
            "cifar-10-batches-bin",
            30_730_000,
            "sha256",
            {
                "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            },
        ),
        _form(
            "cifar-10-batches-py",
            None,
            "md5",
            {
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "40351d587109b95175f43aff81a1287e",
            },
        ),
    ),
    read=partial(_read, 10),
    downloads=(
        Download(
            (
                f"{HOME}cifar-10-binary.tar.gz",
                "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz",
            ),
            "cifar-10-binary.tar.gz",
            170_052_171,
            "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            {"cifar-10-batches-bin": "cifar-10-batches-bin"},
        ),
    ),
)

CIFAR100 = Source(
    name="cifar100",
    title="CIFAR-100, 100 kinds of things, 32 × 32 colour",
    homepage=f"{HOME}cifar.html",
    licence=LICENCE,
    citation=CITATION,
    counts=COUNTS,
    forms=(
        (
            File("cifar-100-binary/train.bin", ("train",), 153_700_000),
            File("cifar-100-binary/test.bin", ("test",), 30_740_000),
        ),
        _form(
            "cifar-100-python",
            None,
            "md5",
            {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        ),
    ),
    read=partial(_read, 100),
    downloads=(
        Download(
            (f"{HOME}cifar-100-binary.tar.gz",),
            "cifar-100-binary.tar.gz",
            168_513_733,
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            {"cifar-100-binary": "cifar-100-binary"},
        ),
    ),
)

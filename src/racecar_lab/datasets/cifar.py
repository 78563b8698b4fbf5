"""CIFAR-10 and CIFAR-100: 32 × 32 colour pictures of 10 and of 100 kinds of things.

The binary version is preferred; the python version, which consists of pickles, is read if only that is there. Checksums
of the archives are those of the home page and of TensorFlow Datasets, those of the pickles torchvision's, and those of
the binary files of CIFAR-10 are of the files in the home page's archive. For the binary files of CIFAR-100 none are
published, only for their archive. The official split is kept: 50 000 to train, 10 000 to test.
"""

from __future__ import annotations

import pickletools
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets.arrays import class_numbers
from racecar_lab.datasets.base import DataError, Download, Samples, Source, files, reading

PIXELS = 3 * 32 * 32
HOME = "https://www.cs.toronto.edu/~kriz/"
CITATION = "Krizhevsky: Learning multiple layers of features from tiny images. 2009."
LICENCE = "none stated; cite the report"
COUNTS = {"train": 50_000, "test": 10_000}

BINARY = {
    "data_batch_1.bin": "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
PYTHON = {
    "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
    "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
    "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "md5:40351d587109b95175f43aff81a1287e",
}
"""File of CIFAR-10's python version → its checksum."""
PYTHON_100 = {"train": "md5:16019d7e3df5f24257cddd939b257f8d", "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"}


def read_binary(path: Path, classes: int) -> Samples:
    """Pictures and labels in a file of the binary version, which has for each picture a byte for the label (two, coarse
    and fine, for 100 classes) and 3072 bytes for the pixels."""
    content, label_bytes = path.read_bytes(), 2 if classes == 100 else 1
    if not content or len(content) % (label_bytes + PIXELS):
        raise DataError(f"{path} has {len(content)} bytes, no multiple of {label_bytes + PIXELS}: it is truncated")
    rows = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, label_bytes + PIXELS)
    return _samples(rows[:, label_bytes:], rows[:, label_bytes - 1], classes, path)


def read_python(path: Path, classes: int) -> Samples:
    """Pictures and labels in a file of the python version, a dict that Python 2 pickled. A pickle can run any code when
    it is loaded, so it is only looked through: the labels are the numbers after their key, the pixels the longest
    string."""
    key, labels, pixels, by_column = "", [], "", False
    wanted = "fine_labels" if classes == 100 else "labels"
    with reading(path, "pickle of CIFAR"):
        for opcode, value, _ in pickletools.genops(path.read_bytes()):
            if opcode.name.endswith("BINSTRING"):
                key = str(value)
                pixels = max(pixels, key, key=len)
            elif opcode.name == "BININT1" and key == wanted:
                labels.append(value)
            elif opcode.name in ("NEWTRUE", "NEWFALSE"):
                by_column = opcode.name == "NEWTRUE"
        if not pixels or len(pixels) % PIXELS:
            raise DataError(f"{path} has no array of N × {PIXELS} bytes")
        rows = torch.frombuffer(bytearray(pixels, "latin-1"), dtype=torch.uint8)
        rows = rows.view(PIXELS, -1).t() if by_column else rows.view(-1, PIXELS)
    return _samples(rows, torch.tensor(labels), classes, path)


def _samples(pixels: Tensor, labels: Tensor, classes: int, path: Path) -> Samples:
    return pixels.reshape(-1, 3, 32, 32).contiguous(), class_numbers(labels, len(pixels), classes, path)


def _read(classes: int, paths: tuple[Path, ...], split: str) -> Samples:
    parts = [(read_binary if path.suffix == ".bin" else read_python)(path, classes) for path in paths]
    return torch.cat([images for images, _ in parts]), torch.cat([labels for _, labels in parts])


CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10, 10 kinds of things, 32 × 32 colour",
    homepage=f"{HOME}cifar.html",
    licence=LICENCE,
    citation=CITATION,
    counts=COUNTS,
    forms=(
        files("cifar-10-batches-bin/", {name: (30_730_000, checksum) for name, checksum in BINARY.items()}),
        files("cifar-10-batches-py/", {name: (None, checksum) for name, checksum in PYTHON.items()}),
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
        files("cifar-100-binary/", {"train.bin": (153_700_000, ""), "test.bin": (30_740_000, "")}),
        files("cifar-100-python/", {name: (None, checksum) for name, checksum in PYTHON_100.items()}),
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

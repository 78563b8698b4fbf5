"""MNIST: 28 × 28 grey pictures of handwritten digits.

The checksums of the compressed files are those of TensorFlow Datasets and torchvision; those of the plain
files are of the same files, decompressed. The official split is kept: 60 000 to train, 10 000 to test, by other
writers.
"""

from __future__ import annotations

from pathlib import Path

from racecar_lab.datasets.base import Download, Samples, Source, files
from racecar_lab.datasets.idx import read_pair

MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://yann.lecun.com/exdb/mnist/",  # the publisher's site, which is often closed
)
COMPRESSED = {
    "train-images-idx3-ubyte.gz": (9912422, "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    "train-labels-idx1-ubyte.gz": (28881, "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    "t10k-images-idx3-ubyte.gz": (1648877, "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    "t10k-labels-idx1-ubyte.gz": (4542, "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
}
PLAIN = {
    "train-images-idx3-ubyte": (47040016, "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "train-labels-idx1-ubyte": (60008, "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3-ubyte": (7840016, "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "t10k-labels-idx1-ubyte": (10008, "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}


def _read(paths: tuple[Path, ...], split: str) -> Samples:
    return read_pair(*paths)


MNIST = Source(
    name="mnist",
    title="MNIST, handwritten digits, 28 × 28 grey",
    homepage="http://yann.lecun.com/exdb/mnist/",
    licence="CC BY-SA 3.0",
    citation="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition. 1998.",
    counts={"train": 60_000, "test": 10_000},
    forms=tuple(files(folder, contents) for folder in ("MNIST/raw/", "") for contents in (COMPRESSED, PLAIN)),
    read=_read,
    downloads=tuple(
        Download(tuple(f"{mirror}{name}" for mirror in MIRRORS), f"MNIST/raw/{name}", size, checksum)
        for name, (size, checksum) in COMPRESSED.items()
    ),
)

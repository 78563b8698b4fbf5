"""Data files that are not the published ones: refused, or taken on demand for results with names of their own."""

import gzip
import hashlib
import random
import struct
import tracemalloc
from dataclasses import replace

import pytest

from racecar_lab.datasets import MNIST, SOURCES
from racecar_lab.experiments import digits
from tests.lab.cli.commands import records

COUNTS = {"train": 20, "test": 10}
DIGITS = ("run", "digits", "--set", "epochs=2", "--variants", "Std", "--seeds", "1", "--workers", "1", "--data", "data")


def write(folder, seed=0):
    """MNIST in small: random pictures, and digits 0 to 9 in turn."""
    rng = random.Random(seed)
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for name, n in (("train", COUNTS["train"]), ("t10k", COUNTS["test"])):
        images = struct.pack(">4I", 0x803, n, 28, 28) + rng.randbytes(n * 28 * 28)
        labels = struct.pack(">2I", 0x801, n) + bytes(i % 10 for i in range(n))
        (raw / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images, mtime=0))
        (raw / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels, mtime=0))


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder in which what ``write`` writes counts as the published MNIST."""
    folder = tmp_path / "data"
    write(folder)
    form = tuple(
        replace(file, size=len(content), checksum=f"sha256:{hashlib.sha256(content).hexdigest()}")
        for file in MNIST.forms[0]
        for content in [(folder / file.path).read_bytes()]
    )
    small = replace(MNIST, counts=COUNTS, forms=(form,))
    monkeypatch.setitem(SOURCES, "mnist", small)
    monkeypatch.setattr(digits, "MNIST", small)
    return folder


def ids(folder):
    return {one["id"] for one in records(folder)}


def test_black_pictures_are_no_mnist(refused, tmp_path):
    """As many as MNIST has, of 27 × 28 pixels, in the publishers' layout: nothing is trained."""
    for name, n in (("train", 60_000), ("t10k", 10_000)):
        with open(tmp_path / f"{name}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">4I", 0x803, n, 27, 28))
            file.truncate(16 + n * 27 * 28)
        labels = struct.pack(">2I", 0x801, n) + bytes(i % 10 for i in range(n))
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(labels)
    line = refused("run", "mnist", "--quick", "--variants", "Std", "--data", ".", "--workers", "1")
    assert "train-images-idx3-ubyte is damaged or another file than the published one" in line
    assert "racecar data check mnist" in line
    assert "--other-data" in line
    assert not (tmp_path / "out").exists()


def test_results_of_other_data_are_apart(cli, refused, data, tmp_path):
    assert cli(*DIGITS).status == 0
    good = ids("out/digits")
    assert cli(*DIGITS, "--other-data").err == "1 of 1 stages are there already\n"  # the published files after all
    write(data, seed=9)
    refused(*DIGITS)
    other = cli(*DIGITS, "--other-data")
    assert (other.status, other.err) == (0, "")
    assert "a run on other data: no evidence" in other.out
    assert len(ids("out/digits-other-data") - good) == 1
    (one,) = records("out/digits-other-data")
    found = hashlib.sha256((data / "MNIST/raw/train-images-idx3-ubyte.gz").read_bytes()).hexdigest()
    assert f"MNIST/raw/train-images-idx3-ubyte.gz sha256:{found}" in one["other_data"]
    write(data, seed=8)  # and others again
    assert cli(*DIGITS, "--other-data", "--out", "out/digits").status == 0
    assert len(ids("out/digits") - ids("out/digits-other-data") - good) == 1
    write(data)
    assert cli(*DIGITS).err == "1 of 1 stages are there already\n"


@pytest.mark.parametrize(
    "pictures, words", [(20, "more bytes of data, its header says 15680"), (2**31, "at most 268435456 are read")]
)
def test_a_small_file_that_would_fill_the_memory(refused, tmp_path, pictures, words):
    """64 MB of zeros in 290 kB: no more is read than the header says, and the header may not say any size."""
    write(tmp_path / "data")
    path = tmp_path / "data/MNIST/raw/train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4I", 0x803, pictures, 28, 28) + bytes(2**26), 1))
    tracemalloc.start()
    line = refused(*DIGITS, "--other-data")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "train-images-idx3-ubyte.gz" in line
    assert words in line
    assert most < 2**24
    assert not (tmp_path / "out").exists()

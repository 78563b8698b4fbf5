"""MNIST's idx files, plain and compressed, written here in small, and the digits that come with the package."""

import gzip
import struct
from dataclasses import replace

import pytest
import torch

from racecar_lab.datasets import MNIST, DataError, digits

SMALL = replace(MNIST, counts={"train": 3, "test": 2})


def idx(code: int, shape: tuple[int, ...], content: bytes) -> bytes:
    return struct.pack(f">{1 + len(shape)}I", code, *shape) + content


def pixels(n: int) -> bytes:
    return bytes(i % 251 for i in range(n * 784))


CONTENT = {
    "train-images-idx3-ubyte": idx(0x803, (3, 28, 28), pixels(3)),
    "train-labels-idx1-ubyte": idx(0x801, (3,), bytes([7, 0, 9])),
    "t10k-images-idx3-ubyte": idx(0x803, (2, 28, 28), pixels(2)),
    "t10k-labels-idx1-ubyte": idx(0x801, (2,), bytes([1, 2])),
}


def write(folder, below="MNIST/raw", compress=False, **other):
    (folder / below).mkdir(parents=True, exist_ok=True)
    for name, content in (CONTENT | {key.replace("_", "-"): value for key, value in other.items()}).items():
        path = folder / below / (f"{name}.gz" if compress else name)
        path.write_bytes(gzip.compress(content) if compress else content)


@pytest.mark.parametrize("below", ["MNIST/raw", "."])
@pytest.mark.parametrize("compress", [False, True])
def test_samples(tmp_path, below, compress):
    write(tmp_path, below, compress)
    images, labels = SMALL.load(tmp_path, "train")
    assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
    assert labels.tolist() == [7, 0, 9]
    assert images.shape == (3, 1, 28, 28)
    for n, row, column in ((0, 0, 0), (0, 1, 2), (2, 27, 27)):
        assert int(images[n, 0, row, column]) == (n * 784 + row * 28 + column) % 251
    images, labels = SMALL.load(tmp_path, "test")
    assert len(images) == 2
    assert labels.tolist() == [1, 2]
    images[0] = 0  # the samples belong to the caller


IMAGES = CONTENT["train-images-idx3-ubyte"]


@pytest.mark.parametrize(
    "name, content, problem",
    [
        ("images_idx3", IMAGES[:-1], "has 2351 bytes of data, its header says 2352"),
        ("images_idx3", IMAGES + b"0", "has more bytes of data, its header says 2352"),
        ("images_idx3", IMAGES[:9], "is no idx file of bytes with 3 dimensions"),
        ("images_idx3", CONTENT["train-labels-idx1-ubyte"], "is no idx file of bytes with 3 dimensions"),
        ("images_idx3", idx(0xD03, (3, 28, 28), pixels(3)), "is no idx file of bytes"),
        ("labels_idx1", idx(0x801, (2,), b"00"), "as labels of 3 pictures"),
        ("labels_idx1", idx(0x801, (3,), bytes([0, 10, 1])), "has labels from 0 to 10, not 0 to 9"),
    ],
)
def test_wrong_files_are_named(tmp_path, name, content, problem):
    write(tmp_path, **{f"train_{name}_ubyte": content})
    path = tmp_path / f"MNIST/raw/train-{name.replace('_', '-')}-ubyte"
    with pytest.raises(DataError) as error:
        SMALL.load(tmp_path, "train")
    assert str(error.value).startswith(f"{path} ")
    assert problem in str(error.value)
    assert str(error.value).endswith(f": racecar data fetch mnist --data {tmp_path}")


@pytest.mark.parametrize("damage", [lambda raw: raw[:-9], lambda raw: b"xx" + raw[2:], lambda raw: raw[:40] + raw[50:]])
def test_a_damaged_compressed_file_is_named(tmp_path, damage):
    write(tmp_path, compress=True)
    path = tmp_path / "MNIST/raw/train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=f"{path} is damaged or no idx file .*: racecar data fetch mnist"):
        SMALL.load(tmp_path, "train")


def test_digits_come_with_the_package():
    images, labels = digits.load()
    assert images.shape == (40, 1, 28, 28)
    assert images.dtype == torch.uint8
    assert labels.tolist() == [label for label in range(10) for _ in range(4)]
    assert images.flatten(1).unique(dim=0).shape[0] == 40
    assert bool((images.flatten(1).max(1).values >= 250).all())

"""CIFAR's binary and python versions, written here in small; a pickle that would run code does not."""

import os
import pickle
import struct
import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from racecar_lab.datasets import CIFAR10, CIFAR100, DataError
from racecar_lab.datasets.cifar import read_binary, read_python

NAMES = {
    10: ("cifar-10-batches-bin", "cifar-10-batches-py"),
    100: ("cifar-100-binary", "cifar-100-python"),
}
SMALL = {
    10: replace(CIFAR10, counts={"train": 10, "test": 2}),
    100: replace(CIFAR100, counts={"train": 2, "test": 2}),
}


def text(content: bytes) -> bytes:
    """A str of Python 2, as it pickled it."""
    if len(content) < 256:
        return b"U" + bytes([len(content)]) + content
    return b"T" + struct.pack("<i", len(content)) + content


def python2(pixels: np.ndarray, by_column: bool = False, **lists: list) -> bytes:
    """A pickled dict as Python 2 wrote it: lists of numbers below 256 or of texts, and an array "data" of bytes."""
    parts = [text(b"batch_label") + text(b"training batch 1 of 5")]
    for name, values in lists.items():
        items = (text(value.encode()) if isinstance(value, str) else b"K" + bytes([value]) for value in values)
        parts.append(text(name.encode()) + b"](" + b"".join(items) + b"e")
    rows, columns = (b"M" + struct.pack("<H", side) for side in pixels.shape)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01" + rows + columns + b"\x86"
    )
    dtype = b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    order, content = (b"\x88", pixels.T) if by_column else (b"\x89", pixels)
    parts.append(text(b"data") + array + dtype + order + text(content.tobytes()) + b"tb")
    return b"\x80\x02}(" + b"".join(parts) + b"u."


def sample(n: int, classes: int, seed: int) -> tuple[np.ndarray, list[int]]:
    draw = np.random.default_rng(seed)
    return draw.integers(0, 256, (n, 3072), dtype=np.uint8), draw.integers(0, classes, n).tolist()


def write(folder, classes: int, version: int) -> dict[str, tuple[np.ndarray, list[int]]]:
    """A small CIFAR; split → pixels and labels."""
    (folder / NAMES[classes][version]).mkdir()
    batches = [f"data_batch_{i}" for i in range(1, 6)] if classes == 10 else ["train"]
    names = dict.fromkeys(batches, "train") | {"test_batch" if classes == 10 else "test": "test"}
    parts: dict[str, list] = {"train": [], "test": []}
    for seed, (name, split) in enumerate(names.items()):
        pixels, labels = sample(2, classes, seed)
        path = folder / NAMES[classes][version] / name
        if version == 0:
            coarse = [] if classes == 10 else [np.full((2, 1), 19, np.uint8)]
            rows = np.concatenate([*coarse, np.array(labels, np.uint8)[:, None], pixels], 1)
            path.with_suffix(".bin").write_bytes(rows.tobytes())
        else:
            kinds = {"labels": labels} if classes == 10 else {"fine_labels": labels, "coarse_labels": [19, 19]}
            path.write_bytes(python2(pixels, **kinds, filenames=["a.png", "b.png"]))
        parts[split].append((pixels, labels))
    return {
        split: (np.concatenate([x for x, _ in pairs]), [label for _, y in pairs for label in y])
        for split, pairs in parts.items()
    }


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("version", [0, 1], ids=["binary", "python"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_samples(tmp_path, classes, version, split):
    pixels, labels = write(tmp_path, classes, version)[split]
    x, y = SMALL[classes].load(tmp_path, split)
    assert (x.dtype, y.dtype) == (torch.uint8, torch.int64)
    assert y.tolist() == labels
    assert np.array_equal(x.numpy(), pixels.reshape(-1, 3, 32, 32))
    red, below = int(pixels[0, 0]), int(pixels[0, 2 * 1024 + 32])  # row-major planes: red, green, blue
    assert (int(x[0, 0, 0, 0]), int(x[0, 2, 1, 0])) == (red, below)


def test_the_binary_version_is_preferred(tmp_path):
    write(tmp_path, 10, 1)
    (tmp_path / NAMES[10][1] / "test_batch").write_bytes(b"broken")
    _, labels = write(tmp_path, 10, 0)["test"]
    assert SMALL[10].load(tmp_path, "test")[1].tolist() == labels


@pytest.mark.parametrize("content", [b"", bytes(3072), b"\x0a" * 3073])
def test_a_wrong_binary_file_is_named(tmp_path, content):
    write(tmp_path, 10, 0)
    path = tmp_path / "cifar-10-batches-bin/data_batch_3.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{path} has .*: racecar data fetch cifar10 --data {tmp_path}$"):
        SMALL[10].load(tmp_path, "train")


PIXELS, LABELS = sample(3, 10, 0)


@pytest.mark.parametrize("by_column", [False, True])
def test_the_python_version_as_pickle_reads_it(tmp_path, by_column):
    content = python2(PIXELS, by_column, labels=LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's, of its old name
        theirs = pickle.loads(content, encoding="bytes")
    (tmp_path / "f").write_bytes(content)
    x, y = read_python(tmp_path / "f", 10)
    assert np.array_equal(theirs[b"data"], x.flatten(1).numpy())
    assert np.array_equal(theirs[b"data"], PIXELS)
    assert theirs[b"labels"] == y.tolist() == LABELS


def test_a_pickle_runs_no_code(tmp_path):
    class Asks:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    (tmp_path / "f").write_bytes(pickle.dumps({b"data": Asks()}, 2))
    with pytest.raises(DataError, match=f"{tmp_path / 'f'} has no array of"):
        read_python(tmp_path / "f", 10)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content, problem",
    [
        (b"", "is damaged or no pickle"),
        (python2(PIXELS, labels=LABELS)[:-9], "is damaged or no pickle"),
        (python2(PIXELS[:, :9], labels=LABELS), "has no array of N × 3072 bytes"),
        (python2(PIXELS, labels=LABELS[:2]), "as labels of 3 pictures"),
        (python2(PIXELS, fine_labels=LABELS), "as labels of 3 pictures"),
        (python2(PIXELS, labels=[1, 2, 10]), "has labels from 1 to 10"),
    ],
)
def test_a_wrong_pickle_is_named(tmp_path, content, problem):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(DataError) as error:
        read_python(tmp_path / "f", 10)
    assert str(error.value).startswith(f"{tmp_path / 'f'} ")
    assert problem in str(error.value)


@settings(max_examples=4 * settings.default.max_examples)
@given(st.data())
def test_damage_is_never_anything_but_a_data_error(tmp_path_factory, data):
    """Bytes changed, cut off or put in anywhere: the file reads, or there is a DataError."""
    path = tmp_path_factory.mktemp("pickle") / "f"
    content = bytearray(python2(np.zeros((2, 4), np.uint8), labels=[1, 2], filenames=["a", "b"]))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    for read in (read_python, read_binary):
        with suppress(DataError):
            read(path, 10)

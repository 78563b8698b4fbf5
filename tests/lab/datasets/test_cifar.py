"""CIFAR's binary and python versions, written here in small; and pickles that ask for more than data."""

import io
import os
import pickle
import struct
import warnings
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from racecar_lab.datasets import CIFAR10, CIFAR100, DataError
from racecar_lab.datasets.cifar import read_binary, read_python
from racecar_lab.datasets.unpickle import read_pickle

NAMES = {
    10: ("cifar-10-batches-bin", "cifar-10-batches-py"),
    100: ("cifar-100-binary", "cifar-100-python"),
}
SMALL = {
    10: replace(CIFAR10, counts={"train": 10, "test": 2}),
    100: replace(CIFAR100, counts={"train": 2, "test": 2}),
}


class Python2(pickle._Pickler):
    """Writes pickles as Python 2 did, in which CIFAR was published: bytes are its str, and NumPy has its old name."""

    dispatch: ClassVar[dict] = dict(pickle._Pickler.dispatch)

    def save_text(self, text):
        text = text.encode() if isinstance(text, str) else text
        if len(text) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(text)]) + text)
        else:
            self.write(pickle.BINSTRING + struct.pack("<i", len(text)) + text)

    dispatch[bytes] = dispatch[str] = save_text

    def save_global(self, what, name=None):
        module = what.__module__.replace("numpy._core", "numpy.core")
        self.write(pickle.GLOBAL + f"{module}\n{what.__name__}\n".encode())
        self.memoize(what)

    dispatch[type] = dispatch[type(len)] = save_global


def python2(content: object) -> bytes:
    buffer = io.BytesIO()
    Python2(buffer, 2).dump(content)
    return buffer.getvalue()


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
            path.write_bytes(python2({"batch_label": "part", **kinds, "data": pixels, "filenames": ["a.png", "b.png"]}))
        parts[split].append((pixels, labels))
    return {
        split: (np.concatenate([x for x, _ in some]), [label for _, y in some for label in y])
        for split, some in parts.items()
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


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "has 0 bytes"),
        (bytes(3072), "has 3072 bytes, no multiple of 3073"),
        (b"\x0a" * 3073, "labels from 10 to 10"),
    ],
)
def test_a_wrong_binary_file_is_named(tmp_path, content, said):
    write(tmp_path, 10, 0)
    path = tmp_path / "cifar-10-batches-bin/data_batch_3.bin"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{path} has .*: racecar data fetch cifar10 --data {tmp_path}$") as error:
        SMALL[10].load(tmp_path, "train")
    assert said in str(error.value)


PIXELS, LABELS = sample(3, 10, 0)


def test_our_pickles_are_those_of_python_2(tmp_path):
    """What the other tests stand on: Python's own reader agrees, and the old names are in the file."""
    content = python2({"data": PIXELS, "labels": LABELS})
    assert b"cnumpy.core.multiarray\n_reconstruct\n" in content
    assert b"_codecs" not in content
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy's, of its old name
        theirs = pickle.loads(content, encoding="bytes")
    (tmp_path / "f").write_bytes(content)
    ours = read_pickle(tmp_path / "f")
    assert np.array_equal(theirs[b"data"], ours[b"data"].numpy())
    assert theirs[b"labels"] == ours[b"labels"]


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_pickles_of_python_3_and_arrays_by_column(tmp_path, protocol, order):
    array = np.asarray(PIXELS, order=order)
    (tmp_path / "f").write_bytes(pickle.dumps({b"data": array, b"labels": LABELS}, protocol))
    x, y = read_python(tmp_path / "f", 10)
    assert np.array_equal(x.numpy().reshape(3, -1), PIXELS)
    assert x.is_contiguous()
    assert y.tolist() == LABELS


class Asks:
    """Pickles as a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "content, name",
    [
        (Asks(os.system, "touch ran"), f"{os.system.__module__}.system"),
        (Asks(eval, "open('ran', 'w')"), "builtins.eval"),
        (Asks(getattr, "", "join"), "builtins.getattr"),
        (np.float64(1), "numpy._core.multiarray.scalar"),
        (OrderedDict(a=1), "collections.OrderedDict"),
        (torch.zeros(1), "torch._utils._rebuild_tensor_v2"),
    ],
)
@pytest.mark.parametrize("protocol", [3, 4])
def test_a_pickle_that_asks_for_anything_else_is_refused_by_name(tmp_path, monkeypatch, content, name, protocol):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").write_bytes(pickle.dumps({b"data": PIXELS, b"labels": content}, protocol))
    with pytest.raises(DataError) as error:
        read_python(tmp_path / "f", 10)
    assert str(error.value) == f"{tmp_path / 'f'}: it asks for {name}, which no such file needs: refused"
    assert not (tmp_path / "ran").exists()


def raw(dtype: str, shape: tuple, content: object) -> bytes:
    """An array with a state of our choice, which NumPy would take at its word."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntC\x01btR(I1\n"
        + pickle.dumps(shape, 2)[2:-1]
        + b"cnumpy\ndtype\n(V" + dtype.encode() + b"\nI0\nI1\ntR(I3\nV|\nNNNI-1\nI-1\nI0\ntbI00\n"
        + pickle.dumps(content, 3)[2:-1]
        + b"tb"
    )  # fmt: skip
    return b"\x80\x03}C\x04data" + array + b"s."


def test_an_array_that_is_announced_and_never_comes(tmp_path):
    (tmp_path / "f").write_bytes(b"\x80\x03}C\x04datacnumpy.core.multiarray\n_reconstruct\n)Rs.")
    with pytest.raises(DataError, match="has no array 'data'"):
        read_python(tmp_path / "f", 10)


def test_arrays_that_are_not_plain_bytes_are_refused(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(raw("u1", (2, 3), b"abcdef"))
    assert read_pickle(path)[b"data"].tolist() == [[97, 98, 99], [100, 101, 102]]
    for wrong in (
        raw("O8", (1,), b"12345678"),  # bytes as addresses of objects
        raw("i1", (2, 3), b"abcdef"),
        raw("u1", (2, 4), b"abcdef"),
        raw("u1", (-2, -3), b"abcdef"),
        raw("u1", (6,), [1, 2, 3, 4, 5, 6]),
        raw("u1", 6, b"abcdef"),
        raw("u1", (0,), b""),
    ):
        path.write_bytes(wrong)
        with pytest.raises(DataError, match=f"{path} is damaged or truncated"):
            read_pickle(path)


@pytest.mark.parametrize(
    "content, said",
    [
        ([], "holds no dict, but list"),
        ({b"labels": LABELS}, "has no array 'data' of N × 3072 bytes"),
        ({b"data": PIXELS[:, :9], b"labels": LABELS}, "has no array 'data'"),
        ({b"data": PIXELS}, "has no list of labels"),
        ({b"data": PIXELS, b"labels": ["cat"] * 3}, "has no list of labels"),
        ({b"data": PIXELS, b"labels": [1]}, "as labels of 3 pictures"),
        ({b"data": PIXELS, b"labels": [1, 2, -1]}, "has labels from -1 to 2"),
    ],
)
def test_a_pickle_with_other_content_is_named(tmp_path, content, said):
    (tmp_path / "f").write_bytes(pickle.dumps(content, 3))
    with pytest.raises(DataError) as error:
        read_python(tmp_path / "f", 10)
    assert str(error.value).startswith(f"{tmp_path / 'f'} ")
    assert said in str(error.value)


@settings(max_examples=8 * settings.default.max_examples)
@given(st.data())
def test_damage_is_never_anything_but_a_data_error(tmp_path_factory, data):
    """Bytes changed, cut off or put in anywhere: the file reads, or there is a DataError."""
    path = tmp_path_factory.mktemp("pickle") / "f"
    content = bytearray(python2({"data": np.zeros((2, 4), np.uint8), "labels": [1, 2], "filenames": ["a", "b"]}))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    for read in (read_pickle, lambda path: read_python(path, 10), lambda path: read_binary(path, 10)):
        with suppress(DataError):
            read(path)

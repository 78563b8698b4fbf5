"""CIFAR-10.1, the shift test, smoke, texture against shape and var_u.mat, written here in small."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from racecar_lab.datasets import CIFAR10_1, INFORMATION, SHIFT, SMOKE_REAL, TEXTURE_SHAPE, DataError, texture_shape
from racecar_lab.datasets.texture_shape import CLASSES, Stimuli, stimuli


def pictures(n: int, side: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def same(images: torch.Tensor, last: np.ndarray) -> bool:
    return images.dtype == torch.uint8 and np.array_equal(images.numpy(), last.transpose(0, 3, 1, 2))


def refused(source, folder, split, problem):
    """One sentence: the file, its problem, and what to do."""
    with pytest.raises(DataError) as error:
        source.load(folder, split)
    assert problem in str(error.value)
    assert str(error.value).endswith(f": {source.remedy(folder)}")


@pytest.mark.parametrize("below", ["", "CIFAR-10.1/datasets"])
def test_cifar10_1(tmp_path, below):
    source, x, y = replace(CIFAR10_1, counts={"test": 3}), pictures(3, 32), np.array([9, 0, 4], np.int32)
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    data, labels = (tmp_path / below / f"cifar10.1_v6_{name}.npy" for name in ("data", "labels"))
    np.save(data, x)
    np.save(labels, y)
    images, numbers = source.load(tmp_path, "test")
    assert same(images, x)
    assert (numbers.dtype, numbers.tolist()) == (torch.int64, [9, 0, 4])
    content = data.read_bytes()
    for wrong in (content[:-1], content[:40], b""):
        data.write_bytes(wrong)
        refused(source, tmp_path, "test", f"{data} is damaged or no npy file of numbers")
    np.save(data, np.array([{"an": "object"}]), allow_pickle=True)
    refused(source, tmp_path, "test", f"{data} is damaged or no npy file of numbers")
    np.save(data, x.astype(np.float32))
    refused(source, tmp_path, "test", f"{data} holds float32 (3, 32, 32, 3) instead of colour pictures in bytes")
    np.save(data, x[:2])
    refused(source, tmp_path, "test", f"{labels} holds torch.int32 (3,) as labels of 2 pictures")


def test_shift(tmp_path):
    source, x, path = replace(SHIFT, counts={"test": 2}), pictures(2, 32), tmp_path / "cifar10_shift_32.npz"
    np.savez(path, x=x, y=np.array([1, 9], np.uint8), class_names=np.array(["airplane", "automobile"]))
    images, labels = source.load(tmp_path, "test")
    assert same(images, x)
    assert labels.tolist() == [1, 9]
    path.write_bytes(path.read_bytes()[:-200])
    refused(source, tmp_path, "test", f"{path} is damaged or no npz file with x, y")
    np.savez(path, x=x)
    refused(source, tmp_path, "test", f"{path} is damaged or no npz file with x, y")


def test_real_smoke(tmp_path):
    source, path = replace(SMOKE_REAL, counts={"plume": 4, "photographs": 3}), tmp_path / "smoke_real_64.npz"
    plume, photographs = pictures(4, 64), pictures(3, 64, 1)
    np.savez_compressed(
        path, scalarflow=plume, smokecrop=photographs, view=np.uint8([0, 0, 4, 4]), frame=np.uint8([0, 119, 0, 119])
    )
    images, view, frame = source.columns(tmp_path, "plume")
    assert same(images, plume)
    assert view.tolist() == [0, 0, 4, 4]
    assert frame.tolist() == [0, 119, 0, 119]
    images, labels = source.load(tmp_path, "photographs")
    assert same(images, photographs)
    assert labels.tolist() == [0, 0, 0]
    content = bytearray(path.read_bytes())
    content[2000:2010] = bytes(10)
    path.write_bytes(content)
    refused(source, tmp_path, "plume", f"{path} is damaged")


def test_information(tmp_path):
    path = tmp_path / "var_u.mat"
    patterns = np.array([[n >> bit & 1 for bit in range(12)] for n in range(4096)], np.uint8)
    labels = (patterns.sum(1) > 5).astype(np.uint8)
    scipy.io.savemat(path, {"F": patterns, "y": labels[None]}, do_compression=True)
    x, y = INFORMATION.load(tmp_path, "all")
    assert (x.dtype, y.dtype, y.shape) == (torch.uint8, torch.int64, (4096,))
    assert np.array_equal(x.numpy(), patterns)
    assert np.array_equal(y.numpy(), labels)
    content = path.read_bytes()
    for wrong in (content[:500], b"", b"x" * 1003):
        path.write_bytes(wrong)
        refused(INFORMATION, tmp_path, "all", f"{path} is damaged or no MATLAB file with F and y")
    scipy.io.savemat(path, {"F": patterns})
    refused(INFORMATION, tmp_path, "all", f"{path} is damaged or no MATLAB file with F and y")
    scipy.io.savemat(path, {"F": patterns[:, :11], "y": labels})
    refused(INFORMATION, tmp_path, "all", f"{path} holds F (4096, 11) instead of patterns of 12 bits")
    scipy.io.savemat(path, {"F": patterns, "y": labels[:7]})
    refused(INFORMATION, tmp_path, "all", f"{path} holds torch.uint8 (7,) as labels of 4096 pictures")


STYLISED = "texture-vs-shape/stimuli/style-transfer-preprocessed-512"


def colour(path, number: int, size=(4, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (number, 2 * number, 0)).save(path)


def test_texture_against_shape(tmp_path, monkeypatch):
    """Sorted by class, number of the picture and texture; hidden files do not count. The packed file has tests beside
    the experiment's split."""
    counts = {"stylised": 4, "edges": 1}
    monkeypatch.setattr(texture_shape, "TEXTURE_SHAPE", replace(TEXTURE_SHAPE, counts=counts))
    names = ("bear10-cat2.png", "bear2-bear1.png", "bear2-airplane3.png", "airplane1-truck1.png")
    for number, name in enumerate(names):
        colour(tmp_path / STYLISED / ("bear" if name.startswith("bear") else "airplane") / name, number)
    (tmp_path / STYLISED / "bear/.DS_Store").write_bytes(b"not a picture")
    colour(tmp_path / "texture-vs-shape/stimuli/edges/dog/dog3.png", 7)
    loaded = stimuli(tmp_path, "stylised")
    assert loaded.images.shape == (4, 3, 4, 4)
    assert loaded.images[:, 0, 0, 0].tolist() == [3, 2, 1, 0]
    assert loaded.images[:, 1, 3, 3].tolist() == [6, 4, 2, 0]
    assert loaded.shape.tolist() == [0, 1, 1, 1]
    assert loaded.texture.tolist() == [CLASSES.index("truck"), 0, 1, CLASSES.index("cat")]
    assert loaded.picture.tolist() == [1, 2, 2, 10]
    edges = stimuli(tmp_path, "edges")
    assert (edges.shape.tolist(), edges.texture.tolist()) == ([CLASSES.index("dog")], [-1])


def test_no_shape_picture_is_on_both_sides():
    picture = torch.arange(1, 11).repeat(3)
    stylised = Stimuli(torch.zeros(30, 3, 1, 1), torch.zeros(30), torch.zeros(30), picture)
    folds = [stylised.held_out(fold) for fold in range(5)]
    assert torch.stack(folds).sum(0).tolist() == [1] * 30, "every picture is tested on once"
    for fold in folds:
        assert len(set(picture[fold].tolist())) == 2
        assert not set(picture[fold].tolist()) & set(picture[~fold].tolist())
    with pytest.raises(ValueError, match="fold must be 0 to 4, not 5"):
        stylised.held_out(5)


def test_wrong_pictures_are_named(tmp_path):
    source, folder = replace(TEXTURE_SHAPE, counts={"stylised": 2}), tmp_path / STYLISED
    folder.mkdir(parents=True)
    refused(source, tmp_path, "stylised", f"{folder} has no stylised pictures")
    colour(folder / "cat/cat1-dog1.png", 1)
    refused(source, tmp_path, "stylised", f"{folder} holds 1 samples of stylised, not 2")
    for name in ("dog1-cat1.png", "cat1-fish1.png", "cat.png"):
        colour(folder / "cat" / name, 1)
        refused(source, tmp_path, "stylised", f"{folder / 'cat' / name} should be named cat1.png or cat1-TEXTURE1.png")
        (folder / "cat" / name).unlink()
    second = folder / "cat/cat2-dog1.png"
    colour(second, 1, (4, 5))
    refused(source, tmp_path, "stylised", "has another size than")
    second.write_bytes((folder / "cat/cat1-dog1.png").read_bytes()[:50])
    refused(source, tmp_path, "stylised", f"{second} is damaged or no picture")

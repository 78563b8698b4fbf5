"""Which pictures texture-shape trains on: in either layout, at any size, and never a shape that it is tested on."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from racecar_lab.datasets.texture_shape import FOLDS, stimuli
from racecar_lab.experiments.texture_shape.splitting import normalised, pictures, split_indices, to_pixels
from tests.lab.experiments.texture_cases import TEXTURE, TINY, write


@pytest.fixture(params=["packed", "folders"])
def folder(request, tmp_path, monkeypatch):
    return write(tmp_path, monkeypatch, request.param == "packed")


@pytest.fixture
def packed(tmp_path, monkeypatch):
    return write(tmp_path, monkeypatch)


def shapes(some, chosen):
    """Which shape pictures these are."""
    return {(int(a), int(b)) for a, b in zip(some.shape[chosen], some.picture[chosen], strict=True)}


def sides(folder, seed=0, **changes):
    some = pictures(folder, 8)["stylised"]
    return some, *split_indices(some, replace(TINY, **{"images": 0, **changes}), seed)


def test_both_layouts_are_the_same(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    write(tmp_path / "a", monkeypatch)
    write(tmp_path / "b", monkeypatch, packed=False)
    for split in ("stylised", "edges", "silhouettes"):
        one, other = (stimuli(tmp_path / name, split) for name in ("a", "b"))
        for field in ("images", "shape", "texture", "picture"):
            assert torch.equal(getattr(one, field), getattr(other, field)), (split, field)


def test_the_tasks(folder):
    """Either layout will do; nothing of the fold's shapes is trained on, in any set."""
    config = replace(TINY, fold=3, images=0)
    found = TEXTURE.data(config, 0, folder)
    assert set(found) == {"A", "texture", "edges", "silhouettes"}
    some, train, test = sides(folder, fold=3)
    assert torch.equal(found["A"].train.x, normalised(some.images[train]))
    assert torch.equal(found["A"].test.y, some.shape[test])
    assert torch.equal(found["texture"].test.y, some.texture[test])
    assert torch.equal(found["texture"].test.x, found["A"].test.x)
    assert {int(one) for one in some.picture[test]} == {7, 8}
    for name in ("edges", "silhouettes"):
        own = pictures(folder, 8)[name]
        assert torch.equal(found[name].test.x, normalised(own.images[(own.picture == 7) | (own.picture == 8)]))
    assert torch.equal((255 * to_pixels(found["A"].train.x)).round().byte(), some.images[train])


@pytest.mark.parametrize("valid", [0.0, 0.25])
def test_no_shape_picture_is_on_both_sides(packed, valid):
    """At random there are: nearly all of those that are tested on."""
    for fold, seed in product(range(FOLDS), range(1000, 1004)):
        some, train, test = sides(packed, seed, fold=fold, valid=valid)
        assert not shapes(some, train) & shapes(some, test)
        some, train, test = sides(packed, seed, fold=fold, valid=valid, split="random")
        both = shapes(some, train) & shapes(some, test)
        assert len(both) > 0.6 * len(shapes(some, test))
        assert not set(train.tolist()) & set(test.tolist())


@pytest.mark.parametrize("split", ["shape", "random"])
def test_a_search_sees_no_test_picture(packed, split):
    """Neither trains on it nor chooses by it; seeds hold out other pictures, and all of them train on as many."""
    for fold in range(FOLDS):
        _, _, test = sides(packed, fold=fold, split=split)
        held = []
        for seed in (1000, 1001):
            _, train, own = sides(packed, seed, fold=fold, split=split, valid=0.25)
            assert not set(test.tolist()) & {*train.tolist(), *own.tolist()}
            held.append(set(own.tolist()))
        assert not held[0] & held[1]
    tasks = TEXTURE.data(replace(TINY, fold=0, split=split, valid=0.25), 1000, packed)
    assert set(tasks) == {"A"}
    assert tasks["A"].valid is tasks["A"].test


def test_every_picture_is_tested_on_once_and_folds_are_as_large(packed):
    for split in ("shape", "random"):
        found = [sides(packed, fold=fold, split=split) for fold in range(FOLDS)]
        assert sorted(torch.cat([test for *_, test in found]).tolist()) == list(range(len(found[0][0].shape)))
    for valid in (0.0, 0.25):
        counts = {
            len(sides(packed, seed, fold=fold, split=split, valid=valid)[1])
            for fold, seed, split in product(range(FOLDS), (1000, 1001), ("shape", "random"))
        }
        assert len(counts) == 1
    with pytest.raises(ValueError, match="images=500: every fold has 4.. to train on"):
        sides(packed, fold=0, images=500)
    assert len(sides(packed, fold=0, images=30)[1]) == 30


def test_larger_pictures_are_made_smaller(tmp_path, monkeypatch):
    """As the public repository's, of 224 pixels: each pixel is about the mean of those that it covers."""
    folder = write(tmp_path, monkeypatch, side=16)
    large, small = stimuli(folder, "edges"), pictures(folder, 8)["edges"]
    assert small.images.shape[-2:] == (8, 8)
    means = large.images.float().unfold(2, 2, 2).unfold(3, 2, 2).mean((-1, -2))
    assert (small.images.float() - means).abs().mean() < 8
    assert torch.equal(small.picture, large.picture)
    with pytest.raises(ValueError, match="size=64: the pictures in the data folder have 16 pixels; set a smaller size"):
        pictures(folder, 64)

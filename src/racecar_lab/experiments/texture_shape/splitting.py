"""Training and test pictures of texture-shape, split by shape picture or at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar_lab.clusters import Clusters
from racecar_lab.datasets.texture_shape import FOLDS, Stimuli, stimuli
from racecar_lab.experiment import Split, Task
from racecar_lab.experiments.texture_shape.config import TextureShapeConfig
from racecar_lab.training import rng

NAME = "texture-shape"
MIDDLE, SPREAD = 0.5, 0.25
"""Mean and standard deviation by which pixels in [0, 1] are normalised. They are constants, so that nothing about the
test pictures is in them."""
TRAINING = 8
"""Number of shape pictures of a class that a fold trains on; a class has ten."""
CLUSTERS = Clusters("fold", overlap=1 / (FOLDS - 1))
"""Dependence of runs that claims take into account: seeds within a fold share its test pictures, and folds share
training pictures. A fold tests on a quarter as many pictures as it trains on."""
SHAPES = ("edges", "silhouettes")
"""Names of the sets of pictures without texture, which are only for testing."""


def tasks(config: TextureShapeConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
    """All tasks of a fold, by name. "A": stylised pictures, labelled by shape; "texture": the same with test pictures
    labelled by texture; "edges" and "silhouettes": the same with test pictures from these sets, of the test shapes. In
    a search there is "A" alone, with pictures held out of the training pictures in place of test pictures."""
    sets = pictures(folder, config.size)
    stylised = sets["stylised"]
    train_indices, test_indices = split_indices(stylised, config, seed)
    train = Split(normalised(stylised.images[train_indices]), stylised.shape[train_indices])
    test = Split(normalised(stylised.images[test_indices]), stylised.shape[test_indices])
    if config.valid:
        return {"A": Task(train, test, test)}
    result = {"A": Task(train, test), "texture": Task(train, Split(test.x, stylised.texture[test_indices]))}
    for name in SHAPES:
        indices = sets[name].held_out(_fold(config))
        result[name] = Task(train, Split(normalised(sets[name].images[indices]), sets[name].shape[indices]))
    return result


def split_indices(stylised: Stimuli, config: TextureShapeConfig, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of the stylised pictures to train on and of those to test on; in a search, the latter are for validation.
    All folds have equally many training pictures, whether they are split by shape picture or at random, so that they
    can be compared and trained as one batched net."""
    turns = _turns(config) if config.valid else 1
    most = min(
        int(_masks(stylised, config, split, fold, turn)[0].sum())
        for split in ("shape", "random")
        for fold in range(FOLDS)
        for turn in range(turns)
    )
    if config.images > most:
        raise ValueError(f"images={config.images}: every fold has {most} to train on")
    fold = _fold(config)
    train, test = _masks(stylised, config, config.split, fold, seed % turns)
    indices = train.nonzero()[:, 0]
    subset = torch.randperm(len(indices), generator=rng.generator(NAME, "cut", fold))[: config.images or most]
    return indices[subset.sort().values], test.nonzero()[:, 0]


def _masks(stylised: Stimuli, config: TextureShapeConfig, split: str, fold: int, turn: int) -> tuple[Tensor, Tensor]:
    """Two masks of the pictures, bool (N,): for training and for testing, or for validation in a search. A search has
    the fold's test pictures in neither mask, and holds some of the others out for validation; ``turn`` is the number of
    that choice."""
    if split == "random":
        order = torch.randperm(len(stylised.shape), generator=rng.generator(NAME, "random"))
        number = order % (FOLDS * 2) + 1  # as if they were ten shape pictures
    else:
        number = stylised.picture
    test = (number - 1) // 2 == fold
    if not config.valid:
        return ~test, test
    others = [picture for picture in range(1, 2 * FOLDS + 1) if (picture - 1) // 2 != fold]
    count = _held_out(config)
    valid = torch.isin(number, torch.tensor(others[turn * count :][:count]))
    return ~test & ~valid, valid


def _held_out(config: TextureShapeConfig) -> int:
    """Number of shape pictures of each class that a search holds out."""
    return min(TRAINING - 1, max(1, round(config.valid * TRAINING)))


def _turns(config: TextureShapeConfig) -> int:
    """Number of disjoint choices that a search has for the shape pictures that it holds out."""
    return TRAINING // _held_out(config)


def _fold(config: TextureShapeConfig) -> int:
    """The number of a configuration's fold, which must not be None."""
    assert config.fold is not None, "configs gives every fold its own"
    return config.fold


@lru_cache(maxsize=1)
def pictures(folder: Path | None, size: int) -> dict[str, Stimuli]:
    """Name of a set ("stylised", "edges", "silhouettes") → its pictures with height and width ``size``. They are cached
    for a process with many jobs."""
    return {name: resized(stimuli(folder, name), size) for name in ("stylised", *SHAPES)}


def resized(original: Stimuli, size: int) -> Stimuli:
    """Reduce pictures to this height and width; a pixel becomes a weighted mean of all that it covers."""
    side = original.images.shape[-1]
    if size > side:
        raise ValueError(f"size={size}: the pictures in the data folder have {side} pixels; set a smaller size")
    if size == side:
        return original
    parts = [
        F.interpolate(part.float(), (size, size), mode="bilinear", antialias=True)
        for part in original.images.split(128)
    ]
    return replace(original, images=torch.cat([part.round().clamp(0, 255).byte() for part in parts]))


def normalised(images: Tensor) -> Tensor:
    """Turn pictures, uint8 (N, 3, H, W), into normalised inputs of a network."""
    return (images.float() / 255 - MIDDLE) / SPREAD


def to_pixels(x: Tensor) -> Tensor:
    """Turn normalised inputs of a network back into pixels in [0, 1]."""
    return (x * SPREAD + MIDDLE).clamp(0, 1)

"""Which pictures are trained on and which are tested on: held out by shape picture, or at random beside that."""

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
"""Of pixels in [0, 1], so that networks see numbers around 0: the same for every fold, so that nothing of the test
pictures is in it."""
KEPT = 8
"""Of the ten shape pictures of a class, those that a fold trains on."""
CLUSTERS = Clusters("fold", overlap=1 / (FOLDS - 1))
"""Seeds within a fold share its test pictures, and folds share training pictures: those that one is tested on are a
quarter of those that it trains on."""
SHAPES = ("edges", "silhouettes")
"""Sets without texture, for testing alone."""


def tasks(config: TextureShapeConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
    """A: stylised pictures by their shape. Edges and silhouettes of the fold's shape pictures are tested on alone, and
    "texture" has A's test pictures by their texture. In a search all of them are what it holds out of the rest, and no
    test picture is looked at."""
    some = pictures(folder, config.size)
    train, test = chosen(some["stylised"], config, seed)
    stylised = some["stylised"]
    first = Split(seen(stylised.images[train]), stylised.shape[train])
    tested = Split(seen(stylised.images[test]), stylised.shape[test])
    if config.valid:
        return {"A": Task(first, tested, tested)}
    found = {"A": Task(first, tested), "texture": Task(first, Split(tested.x, stylised.texture[test]))}
    for name in SHAPES:
        own = some[name].held_out(_fold(config))
        found[name] = Task(first, Split(seen(some[name].images[own]), some[name].shape[own]))
    return found


def chosen(stylised: Stimuli, config: TextureShapeConfig, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of the stylised pictures to train on and to test on; in a search, to choose by. All folds and both splits
    train on as many, so that they can be compared, and trained together."""
    turns = _turns(config) if config.valid else 1
    every = [(split, fold, turn) for split in ("shape", "random") for fold in range(FOLDS) for turn in range(turns)]
    most = min(int(_trained(stylised, config, *one)[0].sum()) for one in every)
    if config.images > most:
        raise ValueError(f"images={config.images}: every fold has {most} to train on")
    fold = _fold(config)
    train, test = _trained(stylised, config, config.split, fold, seed % turns)
    rest = train.nonzero()[:, 0]
    some = torch.randperm(len(rest), generator=rng.generator(NAME, "cut", fold))[: config.images or most]
    return rest[some.sort().values], test.nonzero()[:, 0]


def _trained(stylised: Stimuli, config: TextureShapeConfig, split: str, fold: int, turn: int) -> tuple[Tensor, Tensor]:
    """Which pictures are on either side, bool (N,). A search has none of the fold's pictures on either, and holds some
    of the others out: which ones changes with its turn."""
    if split == "random":
        place = torch.randperm(len(stylised.shape), generator=rng.generator(NAME, "random"))
        number = place % (FOLDS * 2) + 1  # as if they were ten shape pictures
    else:
        number = stylised.picture
    test = (number - 1) // 2 == fold
    if not config.valid:
        return ~test, test
    others = [one for one in range(1, 2 * FOLDS + 1) if (one - 1) // 2 != fold]
    held = torch.isin(number, torch.tensor(others[turn * _held(config) :][: _held(config)]))
    return ~test & ~held, held


def _held(config: TextureShapeConfig) -> int:
    """Shape pictures of each class that a search holds out."""
    return min(KEPT - 1, max(1, round(config.valid * KEPT)))


def _turns(config: TextureShapeConfig) -> int:
    """Choices of them that have none in common."""
    return KEPT // _held(config)


def _fold(config: TextureShapeConfig) -> int:
    assert config.fold is not None, "configs gives every fold its own"
    return config.fold


@lru_cache(maxsize=1)
def pictures(folder: Path | None, size: int) -> dict[str, Stimuli]:
    """All three sets, of that size: a process that does many jobs keeps them."""
    return {name: resized(stimuli(folder, name), size) for name in ("stylised", *SHAPES)}


def resized(some: Stimuli, size: int) -> Stimuli:
    """Pictures made smaller, with all that a pixel covers in it."""
    side = some.images.shape[-1]
    if size > side:
        raise ValueError(f"size={size}: the pictures in the data folder have {side} pixels; set a smaller size")
    if size == side:
        return some
    parts = [
        F.interpolate(one.float(), (size, size), mode="bilinear", antialias=True) for one in some.images.split(128)
    ]
    return replace(some, images=torch.cat([one.round().clamp(0, 255).byte() for one in parts]))


def seen(images: Tensor) -> Tensor:
    """Pictures, uint8, as networks see them."""
    return (images.float() / 255 - MIDDLE) / SPREAD


def shown(x: Tensor) -> Tensor:
    """What networks see as pixels in [0, 1]."""
    return (x * SPREAD + MIDDLE).clamp(0, 1)

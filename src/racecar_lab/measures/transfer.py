"""Transfer learning: a source task and a new task made from the classes of one data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets import Source
from racecar_lab.task import Split, Task

CLASSES = 10
POOL = 1000
"""Maximal number of pictures of each class of the new task, from which labelled ones are drawn."""


def tasks(
    source: Source,
    folder: Path | None,
    generator: torch.Generator,
    *,
    sides: tuple[int, int],
    images: int = 0,
    labels: int = 1,
    valid: float = 0.0,
    tests: int = 0,
    change: Callable[[Tensor], Tensor] | None = None,
) -> Mapping[str, Task]:
    """The source task A, and the new task B with pictures from which labelled ones are drawn. They share no picture.

    Args:
        source: a data set of ten classes.
        folder: the data folder.
        generator: for the random choice of pictures.
        sides: A has the classes below the first number, B those from the second on; B's labels start at 0.
        images: number of training pictures of A; 0: all.
        labels: number of pictures of each class that B must have at least.
        valid: share of the training files that is held out of both and replaces the test files, which are then not
            opened; 0: none.
        tests: number of pictures in each test set, the first ones; 0: all.
        change: a function that changes the pictures of B, (N, C, H, W) in [0, 1].
    """
    x, y = source.load(folder, "train")
    old, new = sides
    order = torch.randperm(len(y), generator=generator)
    held_out, rest = order.tensor_split([round(valid * len(y))])
    test_x, test_y = (x[held_out], y[held_out]) if valid else source.load(folder, "test")
    first = rest[y[rest] < old]
    if len(first) < max(images, 1):
        raise ValueError(f"images={images}: there are {len(first)} to train on")
    first = first[: images or None]
    unused = rest[~torch.isin(rest, first)]
    pools = {label: unused[y[unused] == label][:POOL] for label in range(new, CLASSES)}
    for label, pool in pools.items():
        if len(pool) < labels:
            raise ValueError(f"{labels} labels per class: class {label} has {len(pool)} pictures left")
    second = torch.cat(list(pools.values()))

    def task(train: Tensor, test: Tensor, start: int, change: Callable[[Tensor], Tensor] | None) -> Task:
        """A task from indices of training and test pictures; its labels are those from ``start`` on."""
        splits = []
        for pictures, labels in ((x[train], y[train]), (test_x[test], test_y[test])):
            pictures = pictures.float() / 255
            splits.append(Split(pictures if change is None else change(pictures), labels - start))
        return Task(splits[0], splits[1], splits[1] if valid else None)

    test_a, test_b = (mask.nonzero()[:, 0][: tests or None] for mask in (test_y < old, test_y >= new))
    return {"A": task(first, test_a, 0, None), "B": task(second, test_b, new, change)}

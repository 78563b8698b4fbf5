"""A source task and a new one, from the pictures of one data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets import Source
from racecar_lab.experiment import Split, Task

CLASSES = 10
POOL = 1000
"""Pictures of each class of the new task from which labelled ones are drawn."""


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
    """A: the source task; B: the new one, with the pictures from which labelled ones are drawn. No picture is in both.

    Args:
        source: a data set of ten classes.
        folder: where it is.
        generator: draws which pictures are used.
        sides: classes below the first number are A's, from the second on B's; B's labels are counted from 0.
        images: to train A on; 0: all there are.
        labels: how many pictures of each class B must have at least.
        valid: share of the training files that is held out of both and stands for the test files, which are not opened
            then; 0: none.
        tests: pictures of each test set, the first ones; 0: all.
        change: what is done to the pictures of B, (N, C, H, W) in [0, 1].
    """
    x, y = source.load(folder, "train")
    old, new = sides
    order = torch.randperm(len(y), generator=generator)
    held, rest = order.tensor_split([round(valid * len(y))])
    test_x, test_y = (x[held], y[held]) if valid else source.load(folder, "test")
    first = rest[y[rest] < old]
    if len(first) < max(images, 1):
        raise ValueError(f"images={images}: there are {len(first)} to train on")
    first = first[: images or None]
    used = torch.zeros(len(y), dtype=torch.bool)
    used[first] = True
    left = rest[~used[rest]]
    pools = {label: left[y[left] == label][:POOL] for label in range(new, CLASSES)}
    for label, some in pools.items():
        if len(some) < labels:
            raise ValueError(f"{labels} labels per class: class {label} has {len(some)} pictures left")
    second = torch.cat(list(pools.values()))

    def split(x: Tensor, y: Tensor, first: int = 0, change: Callable[[Tensor], Tensor] | None = None) -> Split:
        x = x.float() / 255
        return Split(x if change is None else change(x), y - first)

    a, b = (which.nonzero()[:, 0][: tests or None] for which in (test_y < old, test_y >= new))
    test_a, test_b = split(test_x[a], test_y[a]), split(test_x[b], test_y[b], new, change)
    return {
        "A": Task(split(x[first], y[first]), test_a, test_a if valid else None),
        "B": Task(split(x[second], y[second], new, change), test_b, test_b if valid else None),
    }

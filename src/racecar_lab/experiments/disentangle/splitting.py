"""The digits of disentangle: pictures to train on, and others to measure with."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets import MNIST, digits
from racecar_lab.experiment import Split, Task


@cache
def digits_task(folder: Path | None, shipped: bool, images: int, tests: int, valid: float) -> Task:
    """Task with pictures (N, 1, 28, 28) in [0, 1] and their digits; the same for every seed, and cached for further
    jobs of the process.

    Args:
        folder: the data folder.
        shipped: use the forty digits that come with racecar, of each digit the first three to train on.
        images, tests: number of training and of test pictures, the first ones; 0: all.
        valid: share of the training pictures, the last ones, that a search holds out. They replace the test pictures,
            whose files are then not read.
    """
    train = _shipped(slice(0, 3)) if shipped else _split(MNIST.load(folder, "train"))
    train = _first(train, images)
    if valid:
        kept = len(train) - round(valid * len(train))
        if not 0 < kept < len(train):
            raise ValueError(f"valid={valid}: of {len(train)} pictures {kept} would be trained on; set another share")
        held_out = Split(train.x[kept:], train.y[kept:])
        return Task(_first(train, kept), held_out, held_out)
    return Task(train, _first(_shipped(slice(3, 4)) if shipped else _split(MNIST.load(folder, "test")), tests))


def _split(samples: tuple[Tensor, Tensor]) -> Split:
    pictures, labels = samples
    return Split(pictures.float() / 255, labels)


def _first(split: Split, count: int) -> Split:
    return Split(split.x[:count], split.y[:count]) if count else split


def _shipped(members: slice) -> Split:
    """These of the four pictures of each digit: first those that come first of all ten."""
    pictures, labels = digits.load()
    chosen = torch.arange(len(labels)).view(-1, 4)[:, members].T.flatten()
    return _split((pictures[chosen], labels[chosen]))

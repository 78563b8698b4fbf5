"""The pictures from which the tasks of a stream are drawn."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from racecar_lab.datasets import digits
from racecar_lab.experiment import Split, Task
from racecar_lab.experiments.streams.config import StreamsConfig
from racecar_lab.training import rng

SHIPPED = 3
"""Number of training pictures among the four digits of each class that come with racecar; the fourth is a test
picture."""


def pool_of(config: StreamsConfig, folder: Path | None) -> Task:
    """Load the training and test pictures from which tasks are drawn, in [0, 1].

    With ``config.valid`` > 0 this share of each class of the training files takes the place of the test files, which
    are not opened.

    Raises:
        ValueError: there are too few pictures for a task or a batch.
    """
    tested = config.protocol.tested
    if config.shipped:
        x, y = digits.load()
        held = torch.arange(len(y)) % 4 >= SHIPPED
    else:
        x, y = config.protocol.source.load(folder, "train")
        held = _held_out(y, config.valid)
    train, test = _split(x[~held], y[~held]), _split(x[held][: None if tested else 0], y[held][: None if tested else 0])
    if tested and not config.valid and not config.shipped:
        test = _split(*config.protocol.source.load(folder, "test"))
    if config.images > len(train):
        raise ValueError(f"images={config.images}: there are {len(train)} to train on")
    least = min(len(train), config.size)
    if config.stream == "pairs":
        least = 2 * min(least // 2, *(int((train.y == kind).sum()) for kind in train.y.unique()))
    if least < config.size_of_batch:
        raise ValueError(f"the {least} pictures of a task do not fill a batch of {config.size_of_batch}: --set batch=N")
    return Task(train, test)


def _held_out(y: Tensor, share: float) -> Tensor:
    """A mask of held-out pictures, (N,): a share of each class. It is the same for all seeds, so that no stream trains
    on pictures by which another stream is judged."""
    held = torch.zeros(len(y), dtype=torch.bool)
    for kind in y.unique() if share else ():
        places = (y == kind).nonzero().squeeze(1)
        shuffled = torch.randperm(len(places), generator=rng.generator("streams", "held", int(kind)))
        held[places[shuffled[: round(share * len(places))]]] = True
    return held


def _split(x: Tensor, y: Tensor) -> Split:
    """Make a split of pictures with values of 0 to 255, scaled to [0, 1], and their labels."""
    return Split(x.float() / 255, y)

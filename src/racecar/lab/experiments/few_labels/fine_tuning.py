"""Fine-tuning on few labels, with a learning rate that is chosen on other pictures than those of the test set."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import torch
from torch import Tensor, nn

from racecar.lab.experiment import Split, Task, accuracy
from racecar.lab.experiments.few_labels.config import FewLabelsConfig
from racecar.lab.measures.tune import tune

HELD = 1000
"""Pictures of the new task, at most, on which a learning rate is chosen: none has a label that a net is given."""


def fine_tuned(
    config: FewLabelsConfig,
    net: nn.Module,
    task: Task,
    classes: int,
    draws: Sequence[tuple[torch.Generator, Tensor]],
    generator: torch.Generator,
) -> tuple[float, float]:
    """Test accuracy, mean over the draws, and the learning rate.

    It is the one of ``tune_lrs`` that does best on pictures that no draw has labelled, again in the mean over the
    draws. The test set is looked at with it alone.

    Args:
        net: as ``body`` gives it; not changed.
        task: the new one; its training pictures are what draws take from.
        draws: for each a generator, for what is random in it, and indices of the labelled pictures.
        generator: draws the pictures that the choice is made on.
    """
    lrs, chosen = config.tune_lrs or (config.tune_lr,), torch.stack([some for _, some in draws])
    few, draw = Split(task.train.x[chosen], task.train.y[chosen]), [one for one, _ in draws]
    how = {"steps": config.tune_steps, "batch": config.tune_batch}
    tuned = dict(zip(lrs, tune(net, few, classes, lrs=lrs, generators=draw, **how), strict=True))
    best = lrs[0]
    if len(lrs) > 1:
        held = _held(task.train, chosen, generator)
        best = max(lrs, key=lambda lr: mean(accuracy(one, held) for one in tuned[lr]))
    return mean(accuracy(one, task.test) for one in tuned[best]), best


def _held(train: Split, drawn: Tensor, generator: torch.Generator) -> Split:
    free = torch.ones(len(train), dtype=torch.bool)
    free[drawn.flatten().cpu()] = False
    left = free.nonzero()[:, 0]
    if not len(left):
        raise ValueError(
            "every picture of the new task is labelled: none is left to choose tune_lrs on; give one alone"
        )
    some = left[torch.randperm(len(left), generator=generator)[:HELD]].to(train.y.device)
    return Split(train.x[some], train.y[some])

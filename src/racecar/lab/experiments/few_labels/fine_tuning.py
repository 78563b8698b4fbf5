"""Fine-tuning on few labels, with a learning rate that is chosen on other pictures than those of the test set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

import torch
from torch import Tensor, nn

from racecar.lab.experiment import Split, Task, accuracy
from racecar.lab.experiments.few_labels.config import FewLabelsConfig
from racecar.lab.measures.probe import tune

HELD = 1000
"""Pictures of the new task, at most, on which a learning rate is chosen: none has a label that a net is given."""

Draws = Callable[[], Sequence[tuple[torch.Generator, Tensor]]]
"""→ for each draw a generator, for what is random in it, and indices of the labelled pictures; always the same ones."""


def fine_tuned(
    config: FewLabelsConfig, net: nn.Module, task: Task, classes: int, draws: Draws, generator: torch.Generator
) -> tuple[float, float]:
    """Test accuracy, mean over the draws, and the learning rate.

    It is the one of ``tune_lrs`` that does best on pictures that no draw has labelled, again in the mean over the
    draws. The test set is looked at with it alone.

    Args:
        net: as ``body`` gives it; not changed.
        task: the new one; its training pictures are what draws take from.
        generator: draws the pictures that the choice is made on.
    """
    lrs = config.tune_lrs or (config.tune_lr,)
    tuned = {lr: [_tune(config, net, task, classes, lr, *draw) for draw in draws()] for lr in lrs}
    if len(lrs) == 1:
        best = lrs[0]
    else:
        held = _held(task.train, [chosen for _, chosen in draws()], generator)
        best = max(lrs, key=lambda lr: mean(accuracy(one, held) for one in tuned[lr]))
    return mean(accuracy(one, task.test) for one in tuned[best]), best


def _tune(
    config: FewLabelsConfig,
    net: nn.Module,
    task: Task,
    classes: int,
    lr: float,
    generator: torch.Generator,
    chosen: Tensor,
) -> nn.Module:
    few = Split(task.train.x[chosen], task.train.y[chosen])
    return tune(net, few, classes, steps=config.tune_steps, lr=lr, batch=config.tune_batch, generator=generator)


def _held(train: Split, drawn: Sequence[Tensor], generator: torch.Generator) -> Split:
    free = torch.ones(len(train), dtype=torch.bool)
    free[torch.cat(list(drawn)).cpu()] = False
    left = free.nonzero()[:, 0]
    if not len(left):
        raise ValueError(
            "every picture of the new task is labelled: none is left to choose tune_lrs on; give one alone"
        )
    some = left[torch.randperm(len(left), generator=generator)[:HELD]].to(train.y.device)
    return Split(train.x[some], train.y[some])

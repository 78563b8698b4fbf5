"""Fine-tuning on few labels, with a learning rate that is chosen on other pictures than those of the test set."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import torch
from torch import Tensor

from racecar_lab.experiment import Split, accuracy
from racecar_lab.experiments.few_labels.new_task import NewTask
from racecar_lab.measures.tune import tune
from racecar_lab.training import rng

HELD = 1000
"""Pictures of the new task, at most, on which a learning rate is chosen: none has a label that a net is given."""


def fine_tuned(nets: Sequence[NewTask], labels: int) -> list[tuple[float, float]]:
    """For each net its test accuracy, mean over the draws, and the learning rate.

    It is the one of ``tune_lrs`` that does best on pictures that no draw has labelled, again in the mean over the
    draws. The test set is looked at with it alone.
    """
    config = nets[0].config
    lrs, draws = config.tune_lrs or (config.tune_lr,), range(config.tune_draws)
    generators, chosen = zip(*(net.draws(labels, config.tune_draws) for net in nets), strict=True)
    sets = [(net.task.train.x[some], net.task.train.y[some]) for net, some in zip(nets, chosen, strict=True)]
    few = Split(*map(torch.stack, zip(*sets, strict=True)))
    how = {"steps": config.tune_steps, "batch": config.tune_batch}
    tuned = tune([net.body for net in nets], few, nets[0].classes, lrs=lrs, generators=generators, **how)

    def score(lr: int, net: int, split: Split) -> float:
        return mean(accuracy(tuned(lr, net, draw), split) for draw in draws)

    found = []
    for i, net in enumerate(nets):
        best = 0
        if len(lrs) > 1:
            held = _held(net.task.train, chosen[i], rng.generator("few-labels", net.seed, "held", labels))
            best = max(range(len(lrs)), key=lambda lr: score(lr, i, held))
        found.append((score(best, i, net.task.test), lrs[best]))
    return found


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

"""Fine-tuning on few labels, with a learning rate chosen on pictures that are neither labelled nor test pictures."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import torch
from torch import Tensor

from racecar_lab.experiment import Split, accuracy
from racecar_lab.experiments.few_labels.new_task import NewTask
from racecar_lab.measures.tune import tune
from racecar_lab.training import rng

HELD_OUT = 1000
"""Largest number of held-out pictures of the new task by which a learning rate of fine-tuning is chosen."""


def fine_tune(nets: Sequence[NewTask], labels: int) -> list[tuple[float, float]]:
    """Fine-tune every net on random sets of ``labels`` pictures per class. Return for each net its mean test accuracy
    over these draws, and its learning rate.

    The learning rate is the one of ``tune_lrs`` with the highest mean accuracy on held-out pictures, which are labelled
    in no draw. Only nets tuned with it are tested.
    """
    config = nets[0].config
    lrs, draws = config.tune_lrs or (config.tune_lr,), range(config.tune_draws)
    generators, chosen = zip(*(net.draws(labels, config.tune_draws) for net in nets), strict=True)
    labelled = Split(
        torch.stack([net.task.train.x[indices] for net, indices in zip(nets, chosen, strict=True)]),
        torch.stack([net.task.train.y[indices] for net, indices in zip(nets, chosen, strict=True)]),
    )
    options = {"steps": config.tune_steps, "batch": config.tune_batch}
    tuned = tune([net.body for net in nets], labelled, nets[0].classes, lrs=lrs, generators=generators, **options)

    def score(lr: int, net: int, split: Split) -> float:
        """Mean accuracy on ``split`` over the draws, of the net with index ``net`` tuned with the learning rate with
        index ``lr``."""
        return mean(accuracy(tuned(lr, net, draw), split) for draw in draws)

    results = []
    for i, net in enumerate(nets):
        best = 0
        if len(lrs) > 1:
            held_out = _held_out(net.task.train, chosen[i], rng.generator("few-labels", net.seed, "held", labels))
            best = max(range(len(lrs)), key=lambda lr: score(lr, i, held_out))
        results.append((score(best, i, net.task.test), lrs[best]))
    return results


def _held_out(train: Split, labelled: Tensor, generator: torch.Generator) -> Split:
    """Draw at most ``HELD_OUT`` training pictures at random, none of them from the indices ``labelled``."""
    unlabelled = torch.ones(len(train), dtype=torch.bool)
    unlabelled[labelled.flatten().cpu()] = False
    candidates = unlabelled.nonzero()[:, 0]
    if not len(candidates):
        raise ValueError(
            "every picture of the new task is labelled: no picture is left to choose from tune_lrs; set a single one"
        )
    indices = candidates[torch.randperm(len(candidates), generator=generator)[:HELD_OUT]].to(train.y.device)
    return Split(train.x[indices], train.y[indices])

"""A trained net with the new task that it is tested on, and linear probes of many nets at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from racecar_lab.experiment import Split, Task, Trained
from racecar_lab.experiments.few_labels.config import FewLabelsConfig
from racecar_lab.experiments.small_net import SIDES
from racecar_lab.measures.probe import body, choose, features, probe_all
from racecar_lab.training import rng


@dataclass(frozen=True)
class NewTask:
    """A trained net without its classifier, and the new task, both on one device. All nets of a seed get the same
    labelled pictures."""

    config: FewLabelsConfig
    body: nn.Module
    task: Task
    seed: int

    @classmethod
    def of(cls, config: FewLabelsConfig, trained: Trained, model: nn.Module | None = None) -> NewTask:
        """Make a ``NewTask`` from a finished stage, with the net ``model``; None: the trained one."""
        task = trained.tasks["B"].to(trained.device)
        return cls(config, body(trained.model if model is None else model), task, trained.seed)

    @property
    def classes(self) -> int:
        """Number of classes of the new task."""
        return 10 - SIDES[self.config.task][1]

    def draws(self, labels: int, count: int) -> tuple[list[torch.Generator], Tensor]:
        """Draw ``count`` random sets with ``labels`` labelled pictures per class. Return the random generator of each
        set, in the state after the draw, and the indices of the pictures (count, N)."""
        generators = [rng.generator("few-labels", self.seed, labels, i) for i in range(count)]
        indices = torch.stack([choose(self.task.train.y, labels, generator) for generator in generators])
        return generators, indices.to(self.task.train.y.device)

    def features(self) -> tuple[dict[int, Split], Split]:
        """Compute features, the inputs of a classifier: those of the labelled pictures (draws, N, D) by labels per
        class, and those of the test pictures. Each picture goes through the net once, however many draws have it."""
        train, test = self.task.train, self.task.test
        drawn = {n: self.draws(n, self.config.draws)[1] for n in self.config.labels}
        needed = torch.cat([indices.flatten() for indices in drawn.values()]).unique()
        position = torch.zeros_like(train.y)
        position[needed] = torch.arange(len(needed), device=position.device)
        x = features(self.body, train.x[needed])
        labelled = {n: Split(x[position[indices]], train.y[indices]) for n, indices in drawn.items()}
        return labelled, Split(features(self.body, test.x), test.y)


def probe_accuracies(nets: Sequence[NewTask]) -> list[dict[int, float]]:
    """For each net, number of labels per class → accuracy of a linear probe, mean over the random sets of labelled
    pictures."""
    config = nets[0].config
    labelled, tests = zip(*(net.features() for net in nets), strict=True)
    results: list[dict[int, float]] = [{} for _ in nets]
    for n in config.labels:
        accuracies = probe_all([splits[n] for splits in labelled], tests, nets[0].classes, config.l2)
        for result, per_draw in zip(results, accuracies, strict=True):
            result[n] = float(per_draw.mean())
    return results

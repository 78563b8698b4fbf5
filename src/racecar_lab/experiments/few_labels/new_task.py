"""A trained net and the new task that it is used for; linear probes of many nets at once."""

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
    """A net without its classifier, and the new task on its device. All nets of a seed have the same labelled
    pictures."""

    config: FewLabelsConfig
    body: nn.Module
    task: Task
    seed: int

    @classmethod
    def of(cls, config: FewLabelsConfig, trained: Trained, model: nn.Module | None = None) -> NewTask:
        """A trained model's, or another one's in its place."""
        task = trained.tasks["B"].to(trained.device)
        return cls(config, body(trained.model if model is None else model), task, trained.seed)

    @property
    def classes(self) -> int:
        return 10 - SIDES[self.config.task][1]

    def draws(self, labels: int, count: int) -> tuple[list[torch.Generator], Tensor]:
        """For each draw the generator, for what is random after it; and indices (draws, N) of the labelled pictures."""
        generators = [rng.generator("few-labels", self.seed, labels, i) for i in range(count)]
        chosen = torch.stack([choose(self.task.train.y, labels, one) for one in generators])
        return generators, chosen.to(self.task.train.y.device)

    def seen(self) -> tuple[dict[int, Split], Split]:
        """Features (draws, N, D) of the labelled pictures, by labels per class, and those of the test pictures."""
        train, test = self.task.train, self.task.test
        drawn = {n: self.draws(n, self.config.draws)[1] for n in self.config.labels}
        needed = torch.cat([chosen.flatten() for chosen in drawn.values()]).unique()
        place = torch.zeros_like(train.y)
        place[needed] = torch.arange(len(needed), device=place.device)
        x = features(self.body, train.x[needed])
        few = {n: Split(x[place[chosen]], train.y[chosen]) for n, chosen in drawn.items()}
        return few, Split(features(self.body, test.x), test.y)


def probed(nets: Sequence[NewTask]) -> list[dict[int, float]]:
    """For each net, labels per class → accuracy of the probe, mean over the draws."""
    config, seen = nets[0].config, [net.seen() for net in nets]
    found: list[dict[int, float]] = [{} for _ in nets]
    for n in config.labels:
        right = probe_all([few[n] for few, _ in seen], [test for _, test in seen], nets[0].classes, config.l2)
        for one, each in zip(found, right, strict=True):
            one[n] = float(each.mean())
    return found

"""A classifier of digits that judges generated pictures: which digit they show, and how far their features are from
those of real ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.experiments.disentangle.splitting import digits_task
from racecar_lab.training import rng

BATCH, LR = 128, 3e-3
EVALUATED = 1000
"""Number of pictures in a batch of an evaluation."""
SHOWN = 0.01
"""Share of the pictures that must show a digit so that it counts as shown."""


class Judge(nn.Module):
    """A small convolutional net: pictures (N, 1, 28, 28) → logits (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.BatchNorm1d(128), nn.ReLU(),
        )  # fmt: skip
        """The layers below the last one, → (N, 128)."""
        self.last = nn.Linear(128, 10)
        self.accuracy = 0.0
        """Share of the pictures that were not trained on, which it puts into the right class."""

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.features(x))

    @torch.no_grad()
    def look(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (N, 128) and classes (N,) of pictures, computed in batches."""
        features = torch.cat([self.features(part) for part in x.split(EVALUATED)])
        return features, self.last(features).argmax(1)


@cache
def trained_judge(folder: Path | None, digits: tuple[bool, int, int, float], epochs: int, device: str) -> Judge:
    """The judge of these digits, trained once in a process and always alike, with a one-cycle learning rate. In a
    search it is judged by held-out pictures.

    Args:
        digits: arguments of ``digits_task`` after the folder.
    """
    task = digits_task(folder, *digits).to(device)
    with torch.random.fork_rng(), torch.backends.cudnn.flags(enabled=True, deterministic=True):
        torch.manual_seed(rng.seed_of("judge"))
        judge = Judge().to(device)
        orders = [rng.order(len(task.train), BATCH, 0, "judge", epoch) for epoch in range(epochs)]
        optimiser = torch.optim.Adam(judge.parameters(), LR)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LR, max(2, sum(map(len, orders))))
        with torch.enable_grad():
            for chosen in torch.cat(orders).to(device):
                optimiser.zero_grad(set_to_none=True)
                F.cross_entropy(judge(task.train.x[chosen]), task.train.y[chosen]).backward()
                optimiser.step()
                schedule.step()
    judge.eval().requires_grad_(False)
    _, split = task.evaluated
    judge.accuracy = float((judge.look(split.x)[1] == split.y).double().mean())
    return judge


def refuse_bad(judge: Judge, least: float) -> None:
    """Raise a ValueError if the judge has less than this accuracy."""
    if judge.accuracy < least:
        raise ValueError(
            f"the classifier that judges pictures has an accuracy of {judge.accuracy:.4f}, less than {least:g}: "
            "set more judge_epochs, or a lower judge_accuracy"
        )


def digits_shown(classes: Tensor) -> int:
    """The number of digits that at least 1 % of the pictures show, from the judge's classes (N,)."""
    counts = torch.bincount(classes, minlength=10)
    return int((counts >= SHOWN * len(classes)).sum())

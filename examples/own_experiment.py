"""An experiment of one's own: do the layers of a net that runs backwards lead back to its input?

Points in 16 dimensions lie on three rings, which two of the dimensions show; a net tells the rings apart. Nothing is
downloaded. In this folder (docs/own-experiment.md explains it):

racecar run own_experiment:Rings
racecar report out/rings --experiment own_experiment:Rings --open
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from racecar import Racecar
from racecar_lab.config import Config
from racecar_lab.experiment import Claim, Experiment, Measured, Reporting, Split, Task, Trained, accuracy
from racecar_lab.search_space import Search


@dataclass(frozen=True, kw_only=True)
class RingsConfig(Config):  # the settings, which --set changes: these and all that Config has
    epochs: int = 20
    lr: float = 3e-3
    batch: int = 50
    points: int = 500
    noise: float = 0.3


class Rings(Experiment[RingsConfig]):
    name, Config = "rings", RingsConfig
    variants, seeds = ("Std", "RR"), 5
    claims = (Claim("RR leads back to the input better than Std", "cosine", stage="A", better="RR", than="Std"),)
    search = Search(lrs={"adam": (1e-3, 1e-2)}, weights={"RR": (0.01, 0.1)})
    reporting = Reporting(title="Three rings in sixteen dimensions")  # the heading of its page; may be left out

    def data(self, config: RingsConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(3, (2 * config.points,), generator=generator)
        x = config.noise * torch.randn(len(y), 16, generator=generator)
        angle = 2 * torch.pi * torch.rand(len(y), generator=generator)
        x[:, :2] += (1 + y)[:, None] * torch.stack((angle.cos(), angle.sin()), 1)
        held_out = round(config.valid * config.points)  # by these a search chooses
        sizes = [held_out, config.points - held_out, config.points]
        valid, train, test = (Split(*part) for part in zip(x.split(sizes), y.split(sizes), strict=True))
        return {"A": Task(train, test, valid if held_out else None)}

    def network(self, config: RingsConfig, dropout: float = 0.0) -> nn.Module:
        return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))

    def weight(self, config: RingsConfig, variant: str) -> float:  # λ of RR; Std has none
        return 0.1

    def measure(self, config: RingsConfig, trained: Trained) -> Measured:
        if trained.task.valid is not None:  # a search, which does not look at the test points
            return Measured({"valid_accuracy": accuracy(trained.model, trained.task.valid)})
        x = trained.task.test.x
        back = Racecar(trained.model, x[:2], mode="full").reconstruct(x)[0]
        cosine = float(nn.functional.cosine_similarity(x, back).mean())
        return Measured({"test_accuracy": accuracy(trained.model, trained.task.test), "cosine": cosine})

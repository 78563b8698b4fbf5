"""A toy GAN, and an autoencoder built from its networks; cut and gone on with on several processes."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.config import Config
from racecar_lab.experiment import Experiment, Measured, Split, Stage, Task, Trained
from racecar_lab.networks.dense import dense
from racecar_lab.running.engines.base import Failure
from racecar_lab.running.job import Job
from racecar_lab.running.jobs import make_jobs
from racecar_lab.training import distributed, rng
from racecar_lab.training.recipe import Batch, Recipe, Turn
from tests.lab.tiny import run

LATENT = 3
STOP = "RACECAR_TEST_STOP"
"""The variable of the environment that says how many losses a process computes before it stops."""
_computed = 0


@dataclass(frozen=True, kw_only=True)
class ToyConfig(Config):
    epochs: int = 2
    lr: float = 1e-2
    batch: int = 8
    norm: bool = False
    """Batch norm in the generator."""


class Toy(Experiment[ToyConfig]):
    """Vectors of six numbers; nobody needs labels."""

    name = "toy"
    Config = ToyConfig
    variants = ("Std", "RR")
    seeds = 1

    def data(self, config: ToyConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        x = torch.randn(26, 6, generator=rng.generator("toy", seed)).tanh()
        return {"A": Task(Split(x, torch.zeros(26)), Split(x, torch.zeros(26)))}

    def stages(self, config: ToyConfig) -> tuple[Stage, ...]:
        return Stage("GAN"), Stage("AE", after="GAN", epochs=3)

    def networks(
        self, config: ToyConfig, stage: Stage, earlier: nn.Module | None, dropout: float = 0.0
    ) -> nn.ModuleDict:
        """The autoencoder is the discriminator with another last layer, and the generator; it is judged by features of
        the discriminator as the GAN left it."""
        if not isinstance(earlier, nn.ModuleDict):
            generator = dense((LATENT, 5, 6), nn.Tanh, norm=config.norm)
            return nn.ModuleDict({"generator": generator, "discriminator": dense((6, 5, 1), nn.Tanh)})
        critic: Any = earlier["discriminator"]
        autoencoder = nn.Sequential(*copy.deepcopy(critic)[:-1], nn.Linear(5, LATENT), *earlier["generator"])  # type: ignore
        return nn.ModuleDict({"autoencoder": autoencoder, "critic": critic})

    def recipe(self, config: ToyConfig, stage: Stage) -> Recipe:
        if stage.name == "AE":
            return Recipe(turns=(Turn(rebuild, "autoencoder"),))
        turns = (
            Turn(tell_apart, "discriminator", lr=2 * config.lr, latent=(LATENT,)),
            Turn(deceive, "generator", betas=(0.5, 0.9), latent=(LATENT,)),
        )
        return Recipe(turns=turns, look=pictures, looks=2)

    def weight(self, config: ToyConfig, variant: str) -> float:
        return 2.0 if variant == "Pre" else 0.3

    def reverse(self, config: ToyConfig) -> dict[str, Any]:
        return {"scale": "mean"}

    def measure(self, config: ToyConfig, trained: Trained) -> Measured:
        with torch.no_grad():
            found = pictures(trained.model, trained.task)["pictures"]
        return Measured({"spread": float(found.std())}, arrays=trained.history)


def pictures(model: Any, task: Task) -> dict[str, Tensor]:
    """What the networks make, of the same numbers every time."""
    if "autoencoder" in model:
        return {"pictures": model["autoencoder"](task.test.x[:4])}
    latent = torch.randn(4, LATENT, generator=rng.generator("pictures"))
    return {"pictures": model["generator"](latent.to(task.test.x.device))}


def tell_apart(discriminator: Any, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
    _pass()
    with torch.no_grad():
        fake = networks["generator"](batch.latent)
    return (F.softplus(-discriminator(batch.x)) + F.softplus(discriminator(fake))).mean()


def deceive(generator: Any, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
    _pass()
    return F.softplus(-networks["discriminator"](generator(batch.latent))).mean()


def rebuild(autoencoder: Any, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
    _pass()
    features = networks["critic"][:-1]  # type: ignore[index]
    again = autoencoder(batch.x)
    return F.mse_loss(again, batch.x) + F.mse_loss(features(again), features(batch.x))


def _pass() -> None:
    global _computed
    if torch.compiler.is_compiling():  # it would compile every step anew
        return
    _computed += 1
    if _computed == int(os.environ.get(STOP, 0)):
        raise InterruptedError


def jobs(variants: Sequence[str] = ("Std", "RR"), **config: Any) -> list[Job]:
    return make_jobs(Toy(), ToyConfig(**config), variants, [0], None)


def cut(some: Sequence[Job], folder: Path, losses: int, engine: str = "here", **plan: Any) -> list[Failure]:
    """Run jobs, with a checkpoint after every step, until so many losses are computed."""
    global _computed
    _computed, os.environ[STOP] = 0, str(losses)
    try:
        return run(some, folder, engine, interval=0.0, **plan)
    finally:
        del os.environ[STOP]


def main(folder: Path) -> None:
    """On processes that torchrun started: everything at once, and cut and gone on with."""
    torch.set_num_threads(1)
    distributed.start("cpu")
    assert run(jobs(), folder / "whole") == []
    for job in jobs():
        assert len(cut([job], folder / "parts", LOSSES[job.variant])) == 1
        assert len(list((folder / "parts" / "checkpoints").iterdir())) == 1
        assert run([job], folder / "parts") == []
    distributed.stop()


LOSSES = {"Std": 4, "RR": 6}
"""With the last of them the generator would take its second turn; RR has looked at every loss once before."""

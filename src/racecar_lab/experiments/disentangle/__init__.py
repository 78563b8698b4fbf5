"""Disentangle: InfoGAN's codes of digits, read by a generator that runs backwards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from racecar_lab.datasets import MNIST, Source, digits
from racecar_lab.experiment import Experiment, Measured, Quick, Reporting, Stage, Task, Trained
from racecar_lab.experiments.disentangle.claims import MARGIN, claims
from racecar_lab.experiments.disentangle.codes import READINGS, code_weights, inputs_count
from racecar_lab.experiments.disentangle.config import DisentangleConfig
from racecar_lab.experiments.disentangle.figures import all_figures
from racecar_lab.experiments.disentangle.losses import encoding, gan
from racecar_lab.experiments.disentangle.measuring import measure
from racecar_lab.experiments.disentangle.regularisers import VARIANTS
from racecar_lab.experiments.disentangle.splitting import digits_task
from racecar_lab.experiments.shared import weight_of
from racecar_lab.networks.infogan import DigitDiscriminator, features, generator, head
from racecar_lab.search_space import Search
from racecar_lab.training.recipe import Recipe
from racecar_lab.training.variants import Variant

WEIGHTS = (0.0, 0.1, 0.3, 1.0, 3.0)
"""λs that a search tries first, for every variant with one."""


class Disentangle(Experiment[DisentangleConfig]):
    name = "disentangle"
    Config = DisentangleConfig
    quick = Quick(
        {
            "epochs": 2, "images": 2000, "tests": 500, "samples": 500, "hidden": 64, "channels": (8, 16),
            "inverted": 50, "inversion_steps": 20, "judge_epochs": 3, "judge_accuracy": 0.0, "lr": 1e-3,
        },
        shipped={"shipped": True, "epochs": 20, "judge_epochs": 40, "images": 0, "tests": 0},
        seeds=1,
    )  # fmt: skip
    variants = ("Std", "RR1", "InfoGAN", "Free")
    seeds = 10
    search = Search(
        lrs={"adam": (2e-4,)},
        weights=dict.fromkeys(("RR1", "InfoGAN", "Free"), WEIGHTS),
        metric="codes",
        limit=("frechet", MARGIN),
        beside=("digits", "generated_accuracy"),
        most=7,
        seeds=2,
    )
    claims = claims()
    reporting = Reporting(
        title="Disentangled digits: codes read by a generator that runs backwards",
        section="disentangled representations",
        summary=(
            "InfoGAN's set-up: a generator of digits gets a ten-way code c1, two continuous codes c2 and c3, and "
            "noise. RR1 compares the codes with those that its own reverse pass finds in the generated picture: no "
            "second network reads them. Beside it: InfoGAN with its head on the discriminator, RR1's loss with free "
            "weights on the way back, an encoder trained afterwards on Std's pictures (stage E), and gradient steps on "
            "the input. A generator that shows fewer than eight digits has failed, and counts like all others."
        ),
        describe_data=digits.describe,
        figures=all_figures,
    )

    def variant(self, name: str) -> Variant:
        return VARIANTS[name] if name in VARIANTS else super().variant(name)

    def sources(self, config: DisentangleConfig) -> tuple[Source, ...]:
        return () if config.shipped else (MNIST,)

    def fingerprint(self, config: DisentangleConfig, folder: Path | None) -> str:
        return "shipped digits" if config.shipped else MNIST.title

    def data(self, config: DisentangleConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        return {"A": digits_task(folder, *config.digits)}

    def network(self, config: DisentangleConfig, dropout: float = 0.0) -> nn.Module:
        """The generator: (N, 74) or (N, 65) → (N, 1, 28, 28)."""
        return generator(inputs_count(config.code), config.norm, *config.sizes)

    def networks(
        self, config: DisentangleConfig, stage: Stage, earlier: nn.Module | None, dropout: float = 0.0
    ) -> nn.ModuleDict:
        """Generator and discriminator; in stage E the generator of A and an encoder with the discriminator's layers."""
        if earlier is not None:
            parts = features(config.norm, *config.sizes), head(READINGS, config.norm, config.hidden)
            return nn.ModuleDict({"generator": earlier["generator"], "encoder": nn.Sequential(*parts)})  # type: ignore[index]
        discriminator = DigitDiscriminator(config.norm, *config.sizes)
        return nn.ModuleDict({"generator": self.network(config), "discriminator": discriminator})

    def stages(self, config: DisentangleConfig) -> tuple[Stage, ...]:
        """The training, and for Std an encoder of its pictures that is trained for as many seconds."""
        epochs = max(1, round(config.encoder_cost * config.epochs))
        encoder = Stage("E", after="A", regularised=False, epochs=epochs, variants=("Std",), network="an encoder")
        return Stage("A"), encoder

    def weight(self, config: DisentangleConfig, variant: str) -> float:
        return weight_of(variant, config.weight)

    def reverse(self, config: DisentangleConfig) -> dict[str, Any]:
        """Only the codes among the inputs have a reverse loss, c1 a third more than c2 and c3."""
        weights = {"*": 1.0, "0": code_weights(config.code)}  # "*", so that the way back starts at the picture
        return {**config.loss, "weight": weights, "fraction": config.fraction}

    def recipe(self, config: DisentangleConfig, stage: Stage) -> Recipe:
        return gan(config) if stage.name == "A" else encoding(config)

    def measure(self, config: DisentangleConfig, trained: Trained) -> Measured:
        return measure(config, trained)

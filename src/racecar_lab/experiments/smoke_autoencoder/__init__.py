"""Smoke autoencoders: a decoder and its mirror image as the encoder, with the decoder or both initialised from a
GAN."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from racecar_lab.datasets import Source, smoke, smoke_real
from racecar_lab.experiment import Experiment, Measured, Quick, Reporting, Stage, Task, Trained
from racecar_lab.experiments.smoke import QUICK, Smoke
from racecar_lab.experiments.smoke.splitting import simulated_task
from racecar_lab.experiments.smoke_autoencoder.claims import claims
from racecar_lab.experiments.smoke_autoencoder.config import SmokeAutoencoderConfig
from racecar_lab.experiments.smoke_autoencoder.figures import all_figures
from racecar_lab.experiments.smoke_autoencoder.measuring import look, measure_autoencoder, rebuild
from racecar_lab.experiments.smoke_autoencoder.splitting import real_tasks
from racecar_lab.experiments.smoke_autoencoder.stages import autoencoder, autoencoder_stages
from racecar_lab.measures.dead import SAMPLES, CollapseCheck
from racecar_lab.search_space import Search
from racecar_lab.training.recipe import Recipe, Turn

GAN = Smoke()
"""The experiment smoke, whose trained generators give the autoencoders their first weights."""


class SmokeAutoencoder(Experiment[SmokeAutoencoderConfig]):
    name = "smoke-autoencoder"
    Config = SmokeAutoencoderConfig
    quick = Quick(
        {
            **QUICK, "epochs": 3, "widths": (4, 8, 8, 4, 4), "tests": 5, "autoencoder_epochs": 1, "pictures": 48,
            "looks": 2,
        },
        seeds=1,
    )  # fmt: skip
    variants = ("Std", "Ort", "RR", "lRR")
    builds_on = "smoke"
    search = Search(
        lrs={},
        weights={},
        fields={"autoencoder_lr": (1e-3, 3e-3, 1e-2, 3e-2)},
        metric="valid_relative",
        higher=False,
        apart=True,  # a rate at which one autoencoder learns fastest kills another
        valid=0.25,
        seeds=2,
    )
    claims = claims()
    reporting = Reporting(
        title="Smoke autoencoders: what the halves of a reversible GAN are good for",
        section="generative adversarial models, transfer to autoencoders",
        summary=(
            "The generator of smoke becomes the decoder of an autoencoder whose encoder is its mirror image. On "
            "simulated smoke (B1), a real plume (B2) and photographs (B3) the decoder or both halves are filled from "
            "it; Std also learns from scratch. The paper has 68.88 % less L2 for RR on B1, and 13.3 % less on real "
            "smoke."
        ),
        figures=all_figures,
    )

    def fingerprint(self, config: SmokeAutoencoderConfig, folder: Path | None) -> str:
        return f"{GAN.fingerprint(config, folder)}; {smoke_real.SMOKE_REAL.title}"

    def sources(self, config: SmokeAutoencoderConfig) -> tuple[Source, ...]:
        return smoke.SMOKE, smoke_real.SMOKE_REAL

    def data(self, config: SmokeAutoencoderConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        """Three tasks, "B1": the simulated frames of the experiment smoke; "B2": a real plume; "B3": photographs of
        smoke."""
        return {"B1": simulated_task(config, seed, folder), **real_tasks(config, folder)}

    def network(self, config: SmokeAutoencoderConfig, dropout: float = 0.0) -> nn.Module:
        return GAN.network(config, dropout)

    def networks(
        self, config: SmokeAutoencoderConfig, stage: Stage, earlier: nn.Module | None, dropout: float = 0.0
    ) -> nn.Module:
        source: Any = None if earlier is None else earlier["generator"]  # type: ignore[index]
        return autoencoder(stage, config.widths, source)

    def stages(self, config: SmokeAutoencoderConfig) -> tuple[Stage, ...]:
        return autoencoder_stages(config.autoencoder_epochs)

    def weight(self, config: SmokeAutoencoderConfig, variant: str) -> float:
        return GAN.weight(config, variant)

    def reverse(self, config: SmokeAutoencoderConfig) -> dict[str, Any]:
        return GAN.reverse(config)

    def recipe(self, config: SmokeAutoencoderConfig, stage: Stage) -> Recipe:
        turn = Turn(rebuild, "autoencoder", lr=config.autoencoder_lr, schedule=config.autoencoder_schedule)
        return Recipe(turns=(turn,), symmetries=True, look=look, looks=config.looks, look_always=True)

    def collapse_check(self, config: SmokeAutoencoderConfig, trained: Trained) -> CollapseCheck:
        network: Any = trained.model["autoencoder"]  # type: ignore[index]
        return CollapseCheck(network, trained.task.train.x[:SAMPLES], autoencoder=True)

    def measure(self, config: SmokeAutoencoderConfig, trained: Trained) -> Measured:
        tables = {"data": self.fingerprint(config, trained.folder)} if trained.stage.task == "B1" else {}
        return measure_autoencoder(trained, tables)

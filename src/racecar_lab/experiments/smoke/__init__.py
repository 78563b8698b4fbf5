"""Smoke: a GAN enlarges pictures of smoke from 16² to 64² pixels; the reverse pass of its generator recovers the low
resolution."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from racecar_lab.datasets import Source, smoke
from racecar_lab.experiment import Experiment, Measured, Quick, Reporting, Stage, Task, Trained
from racecar_lab.experiments.shared import started, weight_of
from racecar_lab.experiments.smoke.claims import ERROR_MARGIN, claims
from racecar_lab.experiments.smoke.config import SmokeConfig
from racecar_lab.experiments.smoke.figures import all_figures
from racecar_lab.experiments.smoke.losses import gan
from racecar_lab.experiments.smoke.measuring import measure_generator
from racecar_lab.experiments.smoke.splitting import simulated_task
from racecar_lab.measures.dead import SAMPLES, CollapseCheck
from racecar_lab.networks.smoke import Discriminator, generator, lowered
from racecar_lab.search_space import Search
from racecar_lab.training.recipe import Recipe

OURS = ("RR", "lRR")
"""Variants with a reverse pass that are compared."""
QUICK: dict[str, Any] = {
    "epochs": 5, "widths": (8, 16, 16, 8, 8), "critic_widths": (8, 16, 32), "share": 0.04, "tests": 10, "lr": 3e-3,
    "weight": 0.1,
}  # fmt: skip


class Smoke(Experiment[SmokeConfig]):
    name = "smoke"
    Config = SmokeConfig
    quick = Quick(QUICK, seeds=1)
    variants = ("Std", "Ort", "RR", "lRR")
    search = Search(
        lrs={"adam": (3e-4, 1e-3, 3e-3, 1e-2)},
        weights=dict.fromkeys(("Ort", *OURS), (0.0, 1e-3, 1e-2, 1e-1, 1.0)),
        sum_weights=dict.fromkeys(OURS, (0.0, 1e-7, 1e-6, 1e-5, 1e-4)),
        metric="psnr_scaled",  # unscaled, a black picture has 12 dB, and the right one, but too bright, has 1 dB
        limit=("valid_l2", ERROR_MARGIN),
        valid=0.25,
        seeds=2,
    )
    claims = claims()
    reporting = Reporting(
        title="Smoke: a GAN that runs backwards",
        section="generative adversarial models, smoke",
        summary=(
            "A generator of six convolutions enlarges simulated smoke from 16² to 64², trained against a discriminator "
            "that sees both resolutions. The reverse pass leads from its output back to the low resolution. In the "
            "paper RR recovers that, and Std gives black."
        ),
        figures=all_figures,
    )

    def fingerprint(self, config: SmokeConfig, folder: Path | None) -> str:
        return f"{smoke.SMOKE.title}, {smoke.checksum(folder)}"

    def sources(self, config: SmokeConfig) -> tuple[Source, ...]:
        return (smoke.SMOKE,)

    def data(self, config: SmokeConfig, seed: int, folder: Path | None) -> Mapping[str, Task]:
        return {"A": simulated_task(config, seed, folder)}

    def network(self, config: SmokeConfig, dropout: float = 0.0) -> nn.Module:
        """Make the generator: (N, 1, H, W) → (N, 1, 4H, 4W)."""
        return started(generator(config.widths), config.start)

    def networks(self, config: SmokeConfig, stage: Stage, earlier: nn.Module | None, dropout: float = 0.0) -> nn.Module:
        return nn.ModuleDict({"generator": self.network(config), "discriminator": Discriminator(config.critic_widths)})

    def weight(self, config: SmokeConfig, variant: str) -> float:
        return weight_of(variant, config.weight, Pre=4.0)

    def reverse(self, config: SmokeConfig) -> dict[str, Any]:
        """Arguments of ``Racecar``: the reverse loss compares all layers of the generator. A ReLU keeps rebuilt smoke
        from being negative."""
        return {**config.loss, "input_activation": "relu"}

    def recipe(self, config: SmokeConfig, stage: Stage) -> Recipe:
        return gan(config)

    def collapse_check(self, config: SmokeConfig, trained: Trained) -> CollapseCheck:
        """Check by which a dead net is found: it looks at the generator, not at the discriminator."""
        return CollapseCheck(trained.model["generator"], lowered(trained.task.train.x[:SAMPLES]))  # type: ignore[index]

    def measure(self, config: SmokeConfig, trained: Trained) -> Measured:
        return measure_generator(trained, self.reverse(config))

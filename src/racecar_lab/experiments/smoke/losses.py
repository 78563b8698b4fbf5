"""Losses of the discriminator and the generator of smoke: a non-saturating GAN, with errors of pixels and of
features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.experiments.smoke.config import SmokeConfig
from racecar_lab.networks.smoke import lowered
from racecar_lab.training.recipe import Batch, Call, Recipe, Turn

BETAS = (0.5, 0.999)
"""Betas of Adam, for both networks, as usual for GANs."""


def discriminator_loss(discriminator: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
    """Loss of the discriminator, for telling true pictures from the generator's; it sees both together with the low
    resolution."""
    low = lowered(batch.x)
    with torch.no_grad():
        fake = networks["generator"](low)
    true_scores, fake_scores = discriminator(torch.cat((batch.x, fake)), torch.cat((low, low))).chunk(2)
    return F.softplus(-true_scores).mean() + F.softplus(fake_scores).mean()


class GeneratorLoss:
    """Loss of the generator: weighted sum of the errors of pixels and of features, and of the adversarial loss. Called
    with (generator, batch, networks), it returns a scalar."""

    def __init__(self, config: SmokeConfig) -> None:
        self.pixel, self.feature, self.adversarial = config.pixel, config.feature, config.adversarial

    def __call__(self, generator: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
        critic: Any = networks["discriminator"]
        low = lowered(batch.x)
        fake = generator(low)
        loss = self.pixel * F.mse_loss(fake, batch.x)
        if not self.feature and not self.adversarial:
            return loss
        features = critic.features(fake, low)
        with torch.no_grad():
            truth = critic.features(batch.x, low)
        feature_loss = torch.stack([F.mse_loss(a, b) for a, b in zip(features, truth, strict=True)]).mean()
        return loss + self.feature * feature_loss + self.adversarial * F.softplus(-critic.judged(features)).mean()


def gan(config: SmokeConfig) -> Recipe:
    """Recipe in which discriminator and generator train in turns on every batch; only the generator is regularised."""
    turns = (
        Turn(discriminator_loss, "discriminator", lr=config.critic_lr, betas=BETAS, regularised=False),
        Turn(GeneratorLoss(config), "generator", betas=BETAS),
    )
    return Recipe(turns=turns, symmetries=True)

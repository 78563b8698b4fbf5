"""What generator and discriminator minimise: a non-saturating GAN, features of the discriminator, and pixels."""

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
"""Of Adam, as usual for GANs."""


def tell_apart(discriminator: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
    """True pictures from the generator's, both with the low resolution beside them."""
    low = lowered(batch.x)
    with torch.no_grad():
        fake = networks["generator"](low)
    true, made = discriminator(torch.cat((batch.x, fake)), torch.cat((low, low))).chunk(2)
    return F.softplus(-true).mean() + F.softplus(made).mean()


class Deceive:
    """The generator's loss: (network, batch, all networks) → scalar."""

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
        alike = torch.stack([F.mse_loss(a, b) for a, b in zip(features, truth, strict=True)]).mean()
        return loss + self.feature * alike + self.adversarial * F.softplus(-critic.judged(features)).mean()


def gan(config: SmokeConfig) -> Recipe:
    """Turns on every batch, the discriminator first; the generator alone is regularised."""
    turns = (
        Turn(tell_apart, "discriminator", lr=config.critic_lr, betas=BETAS, regularised=False),
        Turn(Deceive(config), "generator", betas=BETAS),
    )
    return Recipe(turns=turns, symmetries=True)

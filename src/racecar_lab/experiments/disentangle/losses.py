"""The losses of the stages: of a GAN with codes among the generator's inputs, and of an encoder of its pictures."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.experiments.disentangle.codes import DRAWS, Codes, draw, readings_loss, to_inputs
from racecar_lab.experiments.disentangle.config import DisentangleConfig
from racecar_lab.training.recipe import Batch, Call, Recipe, Turn

BETAS = (0.5, 0.999)
"""Betas of Adam, as usual for GANs."""


class Losses:
    """The losses of all networks, each (network, batch, networks) → scalar."""

    def __init__(self, config: DisentangleConfig) -> None:
        self.code = config.code

    def drawn(self, batch: Batch) -> tuple[Codes, Tensor]:
        """Random codes, and inputs of the generator with them."""
        assert batch.latent is not None
        codes, noise = draw(batch.latent)
        return codes, to_inputs(codes, noise, self.code)

    def discriminator(self, discriminator: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
        """The loss of telling real pictures from the generator's, each in a batch of its own for batch norm."""
        with torch.no_grad():
            fake = networks["generator"](self.drawn(batch)[1])
        return F.softplus(-discriminator(batch.x)).mean() + F.softplus(discriminator(fake)).mean()

    def generator(self, generator: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
        """The loss of looking real, non-saturating."""
        fake = generator(self.drawn(batch)[1])
        return F.softplus(-networks["discriminator"](fake)).mean()

    def encoder(self, encoder: Call, batch: Batch, networks: Mapping[str, nn.Module]) -> Tensor:
        """The loss of reading the codes of the generator's pictures."""
        codes, inputs = self.drawn(batch)
        with torch.no_grad():
            fake = networks["generator"](inputs)
        return readings_loss(encoder(fake), codes)


def gan(config: DisentangleConfig) -> Recipe:
    """Recipe in which discriminator and generator train in turns on every batch; only the generator is regularised."""
    losses = Losses(config)
    turns = (
        Turn(losses.discriminator, "discriminator", betas=BETAS, latent=(DRAWS,), regularised=False),
        Turn(losses.generator, "generator", betas=BETAS, latent=(DRAWS,)),
    )
    return Recipe(turns=turns)


def encoding(config: DisentangleConfig) -> Recipe:
    """Recipe in which an encoder learns from pictures of a generator that stays as it is."""
    return Recipe(turns=(Turn(Losses(config).encoder, "encoder", betas=BETAS, latent=(DRAWS,)),))

"""The variants with networks of their own that read the codes of generated pictures: InfoGAN and Free."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from racecar_lab.experiments.disentangle.codes import (
    READINGS,
    code_weights,
    from_inputs,
    inputs_count,
    readings_loss,
)
from racecar_lab.experiments.disentangle.config import DisentangleConfig
from racecar_lab.networks.infogan import head, mirrored
from racecar_lab.training.objective import Regularised
from racecar_lab.training.variants import OwnVariant


class InfoGan(Regularised):
    """A generator with InfoGAN's regulariser: a head on the discriminator's features reads the codes of the generated
    pictures. Its loss trains generator and head; the features are trained by the discriminator's own loss alone."""

    def __init__(self, networks: Mapping[str, nn.Module], config: DisentangleConfig) -> None:
        super().__init__(networks["generator"])
        self.head, self.code = networks["head"], config.code
        self._others = {"discriminator": networks["discriminator"]}  # in a dict: not trained with the generator

    def forward(self, *inputs: Tensor, noise: Tensor | None = None, on: bool = True) -> tuple[Tensor, Tensor]:
        pictures, _ = super().forward(*inputs)
        readings = self.head(self._others["discriminator"].features(pictures))  # type: ignore[operator]
        return pictures, readings_loss(readings, from_inputs(inputs[0], self.code))


class Free(Regularised):
    """A generator with RR1's loss, but free weights on the way back: a mirror image of it with weights of its own,
    which are trained with it, rebuilds its input."""

    def __init__(self, networks: Mapping[str, nn.Module], config: DisentangleConfig) -> None:
        super().__init__(networks["generator"])
        self.mirror = networks["mirror"]
        self.weights = code_weights(config.code).to(next(self.mirror.parameters()).device)

    def forward(self, *inputs: Tensor, noise: Tensor | None = None, on: bool = True) -> tuple[Tensor, Tensor]:
        pictures, _ = super().forward(*inputs)
        return pictures, relative_error(inputs[0], self.mirror(pictures), self.weights)


def relative_error(x: Tensor, rebuilt: Tensor, weights: Tensor) -> Tensor:
    """Σ w (x − x')² / Σ x² over a batch (N, D), the latter without inputs of weight 0: the loss of RR1 with
    ``scale="relative"``."""
    return (weights * (x - rebuilt).square()).sum() / ((weights > 0) * x.square()).sum()


def _head(config: DisentangleConfig) -> nn.Module:
    return head(READINGS, config.norm, config.hidden)


def _mirror(config: DisentangleConfig) -> nn.Module:
    return mirrored(inputs_count(config.code), config.norm, *config.sizes)


VARIANTS = {
    variant.name: variant
    for variant in (
        OwnVariant(
            "InfoGAN", "InfoGAN, a head on the discriminator's features", networks={"head": _head}, regularised=InfoGan
        ),
        OwnVariant("Free", "RR1 with free weights on the way back", networks={"mirror": _mirror}, regularised=Free),
    )
}
"""The experiment's own variants by name."""

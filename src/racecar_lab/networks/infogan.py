"""Networks for disentangle: InfoGAN's generator and discriminator of digits, the head that reads codes, and a mirror
image of the generator.

Layers as in Chen et al. (2016), "InfoGAN", for MNIST: pictures have 28² pixels, which two strided convolutions halve
twice, to 7².
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

SIDE = 7
"""Height and width of the smallest feature maps."""
HIDDEN, CHANNELS, HEAD = 1024, (64, 128), 128
"""Width of the widest linear layer, channels of the larger and the smaller feature maps, and width of the head."""


def generator(inputs: int, norm: bool, hidden: int = HIDDEN, channels: Sequence[int] = CHANNELS) -> nn.Sequential:
    """The generator (N, inputs) → pictures (N, 1, 28, 28) in [0, 1]: two linear layers and two transposed convolutions.

    Args:
        inputs: number of inputs: codes and noise.
        norm: True for batch norm after every layer but the last.
    """
    large, small = channels
    return nn.Sequential(
        nn.Linear(inputs, hidden), *_norm_1d(norm, hidden), nn.ReLU(),
        nn.Linear(hidden, SIDE * SIDE * small), *_norm_1d(norm, SIDE * SIDE * small), nn.ReLU(),
        nn.Unflatten(1, (small, SIDE, SIDE)),
        nn.ConvTranspose2d(small, large, 4, 2, 1), *_norm_2d(norm, large), nn.ReLU(),
        nn.ConvTranspose2d(large, 1, 4, 2, 1), nn.Sigmoid(),
    )  # fmt: skip


def mirrored(inputs: int, norm: bool, hidden: int = HIDDEN, channels: Sequence[int] = CHANNELS) -> nn.Sequential:
    """A mirror image of the generator with weights of its own: pictures (N, 1, 28, 28) → (N, inputs). It has the layers
    of the generator's reverse pass, in their order, and no activation after the last one."""
    large, small = channels
    return nn.Sequential(
        nn.Conv2d(1, large, 4, 2, 1), *_norm_2d(norm, large), nn.ReLU(),
        nn.Conv2d(large, small, 4, 2, 1), nn.Flatten(), *_norm_1d(norm, SIDE * SIDE * small), nn.ReLU(),
        nn.Linear(SIDE * SIDE * small, hidden), *_norm_1d(norm, hidden), nn.ReLU(),
        nn.Linear(hidden, inputs),
    )  # fmt: skip


class DigitDiscriminator(nn.Module):
    """A classifier of real pictures (N, 1, 28, 28) against generated ones: two strided convolutions and a linear layer,
    whose outputs are its features, and one logit.

    Args:
        norm: True for batch norm after every layer but the first and the last.
    """

    def __init__(self, norm: bool, hidden: int = HIDDEN, channels: Sequence[int] = CHANNELS) -> None:
        super().__init__()
        self.features, self.last = features(norm, hidden, channels), nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Pictures → logits (N,), larger for those that look real."""
        return self.last(self.features(x)).squeeze(1)


def features(norm: bool, hidden: int = HIDDEN, channels: Sequence[int] = CHANNELS) -> nn.Sequential:
    """The layers of the discriminator up to its features: pictures (N, 1, 28, 28) → (N, hidden)."""
    large, small = channels
    return nn.Sequential(
        nn.Conv2d(1, large, 4, 2, 1), nn.LeakyReLU(0.1),
        nn.Conv2d(large, small, 4, 2, 1), *_norm_2d(norm, small), nn.LeakyReLU(0.1),
        nn.Flatten(), nn.Linear(SIDE * SIDE * small, hidden), *_norm_1d(norm, hidden), nn.LeakyReLU(0.1),
    )  # fmt: skip


def head(outputs: int, norm: bool, hidden: int = HIDDEN, width: int = HEAD) -> nn.Sequential:
    """The head Q of InfoGAN: features (N, hidden) → readings of the codes (N, outputs)."""
    return nn.Sequential(nn.Linear(hidden, width), *_norm_1d(norm, width), nn.LeakyReLU(0.1), nn.Linear(width, outputs))


def _norm_1d(norm: bool, width: int) -> list[nn.Module]:
    return [nn.BatchNorm1d(width)] if norm else []


def _norm_2d(norm: bool, width: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(width)] if norm else []

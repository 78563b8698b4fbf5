"""Super-resolution of smoke by a GAN, and the autoencoder that its generator makes with its own mirror image.

The tables of the paper that give the layers are not in the text that we have: six convolutions in the generator, a
discriminator that sees the high resolution and the enlarged low one are its words; widths are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FACTOR = 4
"""What a picture is enlarged by."""
WIDTHS = (32, 64, 64, 32, 16)
"""Channels after the generator's first five layers."""
ENLARGED = (2, 4)
"""Layers, counted from 1, after which pictures have twice the height and width."""
CRITIC = (32, 64, 128)
"""Channels of the discriminator, each at half the height and width."""


def lowered(x: Tensor) -> Tensor:
    """High resolution (N, C, H, W) → low (N, C, H/4, W/4): means of squares."""
    return F.avg_pool2d(x, FACTOR)


def generator(widths: Sequence[int] = WIDTHS, channels: int = 1) -> nn.Sequential:
    """Six 3×3 convolutions, (N, 1, H, W) → (N, channels, 4H, 4W), with ReLU after all but the last. After the second
    and the fourth pixels are repeated: all of what the reverse pass needs is still there."""
    sizes, parts = (1, *widths, channels), nn.Sequential()
    for i, (before, after) in enumerate(pairwise(sizes), 1):
        parts.append(nn.Conv2d(before, after, 3, padding=1))
        if i < len(sizes) - 1:
            parts.append(nn.ReLU())
        if i in ENLARGED:
            parts.append(nn.Upsample(scale_factor=2))
    return parts


class Discriminator(nn.Module):
    """Tells pictures (N, 1, 4H, 4W) from those of a generator, given the low resolution (N, 1, H, W): strided
    convolutions and leaky ReLU; a logit for each patch."""

    def __init__(self, widths: Sequence[int] = CRITIC) -> None:
        super().__init__()
        sizes = (2, *widths)
        self.hidden = nn.ModuleList(nn.Conv2d(before, after, 4, 2, 1) for before, after in pairwise(sizes))
        self.last = nn.Conv2d(sizes[-1], 1, 3, padding=1)

    def features(self, high: Tensor, low: Tensor) -> list[Tensor]:
        """What the hidden layers see in a picture, the feature space that a loss compares."""
        x = torch.cat((high, F.interpolate(low, scale_factor=FACTOR, mode="nearest")), 1)
        found = []
        for layer in self.hidden:
            x = F.leaky_relu(layer(x), 0.2)
            found.append(x)
        return found

    def forward(self, high: Tensor, low: Tensor) -> Tensor:
        """(N, 1, H/2, W/2)."""
        return self.judged(self.features(high, low))

    def judged(self, features: Sequence[Tensor]) -> Tensor:
        """The logits of pictures whose features are known."""
        return self.last(features[-1])


class Mirrored(nn.Module):
    """The reverse step of a 3×3 convolution as a layer of its own: Mᵀ(x − b), with M and b stored as the convolution
    stores them."""

    def __init__(self, before: int, after: int) -> None:
        """(N, before, H, W) → (N, after, H, W)."""
        super().__init__()
        fresh = nn.Conv2d(before, after, 3, padding=1)  # for PyTorch's first weights of a layer with so many inputs
        self.weight = nn.Parameter(fresh.weight.detach().transpose(0, 1).contiguous())
        self.bias = nn.Parameter(torch.empty(before).uniform_(-1, 1) * (9 * before) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose2d(x - self.bias.view(-1, 1, 1), self.weight, padding=1)


def encoder(widths: Sequence[int] = WIDTHS, channels: int = 1) -> nn.Sequential:
    """The generator mirrored, (N, channels, 4H, 4W) → (N, 1, H, W), layer for layer what its reverse pass does: where
    it repeats pixels, means of squares are taken. The last layer has no activation."""
    sizes, parts = (1, *widths, channels), nn.Sequential()
    for i in range(len(sizes) - 1, 0, -1):
        parts.append(Mirrored(sizes[i], sizes[i - 1]))
        if i > 1:
            parts.append(nn.ReLU())
        if i - 1 in ENLARGED:
            parts.append(nn.AvgPool2d(2))
    return parts


def weighted(parts: nn.Sequential) -> list[nn.Conv2d | Mirrored]:
    """The layers with weights, in order."""
    return [part for part in parts if isinstance(part, nn.Conv2d | Mirrored)]


@torch.no_grad()
def fill_decoder(decoder: nn.Sequential, source: nn.Sequential) -> None:
    """Copy a generator of grey pictures; its last layer is copied into every channel that the decoder has."""
    for mine, given in zip(weighted(decoder), weighted(source), strict=True):
        times = mine.weight.shape[0] // given.weight.shape[0]
        mine.weight.copy_(given.weight.repeat(times, 1, 1, 1))
        mine.bias.copy_(given.bias.repeat(times))  # type: ignore[union-attr]


@torch.no_grad()
def fill_encoder(encoder: nn.Sequential, source: nn.Sequential) -> None:
    """Make an encoder the reverse pass of a generator of grey pictures. Of several channels it takes the mean, so that
    a grey picture in colour has the code that it has in grey."""
    for mine, given in zip(reversed(weighted(encoder)), weighted(source), strict=True):
        times = mine.weight.shape[0] // given.weight.shape[0]
        mine.weight.copy_(given.weight.repeat(times, 1, 1, 1) / times)
        mine.bias.copy_(given.bias.repeat(times))  # type: ignore[union-attr]

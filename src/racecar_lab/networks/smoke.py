"""Networks for smoke: generator and discriminator of a super-resolution GAN, and the generator mirrored as an encoder.

The text of the paper that we have lacks the tables of layers. Six convolutions in the generator, and a discriminator
that sees the high resolution and the enlarged low one, are from its text; the widths are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FACTOR = 4
"""Ratio of high to low resolution, in height and in width."""
WIDTHS = (32, 64, 64, 32, 16)
"""Number of channels after each of the generator's first five layers."""
ENLARGED = (2, 4)
"""Numbers of the generator's layers, counted from 1, after which height and width are doubled."""
CRITIC = (32, 64, 128)
"""Number of channels of each of the discriminator's hidden layers, each of which halves height and width."""


def lowered(x: Tensor) -> Tensor:
    """Reduce pictures (N, C, H, W) to the low resolution (N, C, H/4, W/4) by means over 4×4 pixels."""
    return F.avg_pool2d(x, FACTOR)


def generator(widths: Sequence[int] = WIDTHS, channels: int = 1) -> nn.Sequential:
    """The generator (N, 1, H, W) → (N, channels, 4H, 4W): six 3×3 convolutions, with ReLU after all but the last. After
    the second and the fourth, pixels are repeated, which the reverse pass can undo exactly."""
    sizes, parts = (1, *widths, channels), nn.Sequential()
    for i, (before, after) in enumerate(pairwise(sizes), 1):
        parts.append(nn.Conv2d(before, after, 3, padding=1))
        if i < len(sizes) - 1:
            parts.append(nn.ReLU())
        if i in ENLARGED:
            parts.append(nn.Upsample(scale_factor=2))
    return parts


class Discriminator(nn.Module):
    """A classifier of real pictures (N, 1, 4H, 4W) against generated ones, given the low resolution (N, 1, H, W):
    strided convolutions and leaky ReLU, with a logit for each patch."""

    def __init__(self, widths: Sequence[int] = CRITIC) -> None:
        super().__init__()
        sizes = (2, *widths)
        self.hidden = nn.ModuleList(nn.Conv2d(before, after, 4, 2, 1) for before, after in pairwise(sizes))
        self.last = nn.Conv2d(sizes[-1], 1, 3, padding=1)

    def features(self, high: Tensor, low: Tensor) -> list[Tensor]:
        """The outputs of the discriminator's hidden layers for pictures; a loss compares them with those of others."""
        x = torch.cat((high, F.interpolate(low, scale_factor=FACTOR, mode="nearest")), 1)
        outputs = []
        for layer in self.hidden:
            x = F.leaky_relu(layer(x), 0.2)
            outputs.append(x)
        return outputs

    def forward(self, high: Tensor, low: Tensor) -> Tensor:
        """High resolution (N, 1, 4H, 4W) and low (N, 1, H, W) → a logit for each patch, (N, 1, H/2, W/2)."""
        return self.judged(self.features(high, low))

    def judged(self, features: Sequence[Tensor]) -> Tensor:
        """The discriminator's logits for pictures, a logit for each patch, from the outputs of its hidden layers."""
        return self.last(features[-1])


class Mirrored(nn.Module):
    """The reverse step of a 3×3 convolution as a layer with its own weights: Mᵀ(x − b), with weight M and bias b in the
    convolution's format."""

    def __init__(self, before: int, after: int) -> None:
        """Draw the initial weights.

        Args:
            before: number of channels of the input.
            after: number of channels of the output.
        """
        super().__init__()
        fresh = nn.Conv2d(before, after, 3, padding=1)  # for PyTorch's initial weights with this fan-in
        self.weight = nn.Parameter(fresh.weight.detach().transpose(0, 1).contiguous())
        self.bias = nn.Parameter(torch.empty(before).uniform_(-1, 1) * (9 * before) ** -0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv_transpose2d(x - self.bias.view(-1, 1, 1), self.weight, padding=1)


def encoder(widths: Sequence[int] = WIDTHS, channels: int = 1) -> nn.Sequential:
    """The encoder (N, channels, 4H, 4W) → (N, 1, H, W): layer for layer the reverse pass of the generator. Where the
    generator repeats pixels, the encoder takes means over 2×2 pixels. The last layer has no activation."""
    sizes, parts = (1, *widths, channels), nn.Sequential()
    for i in range(len(sizes) - 1, 0, -1):
        parts.append(Mirrored(sizes[i], sizes[i - 1]))
        if i > 1:
            parts.append(nn.ReLU())
        if i - 1 in ENLARGED:
            parts.append(nn.AvgPool2d(2))
    return parts


def weighted(parts: nn.Sequential) -> list[nn.Conv2d | Mirrored]:
    """The layers of a network that have weights, in their order."""
    return [part for part in parts if isinstance(part, nn.Conv2d | Mirrored)]


@torch.no_grad()
def fill_decoder(decoder: nn.Sequential, source: nn.Sequential) -> None:
    """Copy the weights of a generator of grey pictures into a decoder; the weights of its last layer are copied into
    every output channel."""
    for layer, original in zip(weighted(decoder), weighted(source), strict=True):
        times = layer.weight.shape[0] // original.weight.shape[0]
        layer.weight.copy_(original.weight.repeat(times, 1, 1, 1))
        layer.bias.copy_(original.bias.repeat(times))  # type: ignore[union-attr]


@torch.no_grad()
def fill_encoder(encoder: nn.Sequential, source: nn.Sequential) -> None:
    """Copy the weights of a generator of grey pictures into an encoder, which then computes its reverse pass. It takes
    the mean of several channels, so that a grey picture in colour has the same code as in grey."""
    for layer, original in zip(reversed(weighted(encoder)), weighted(source), strict=True):
        times = layer.weight.shape[0] // original.weight.shape[0]
        layer.weight.copy_(original.weight.repeat(times, 1, 1, 1) / times)
        layer.bias.copy_(original.bias.repeat(times))  # type: ignore[union-attr]

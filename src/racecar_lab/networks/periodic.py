"""Convolutional networks for states on a periodic grid: plain ones, and an invertible one of coupling layers."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LAYERS = 6
"""Number of convolutions of a plain network."""
COUPLINGS = 8
"""Number of coupling layers."""
LARGEST = 2.0
"""Largest |logarithm| of the factor by which a coupling layer scales."""


def convolution(inputs: int, outputs: int) -> nn.Conv2d:
    """A 3×3 convolution with circular padding."""
    return nn.Conv2d(inputs, outputs, 3, padding=1, padding_mode="circular")


def periodic(fields: int, width: int) -> nn.Sequential:
    """Six convolutions with ReLUs between them and no norm, (N, fields, H, W) → (N, fields, H, W).

    A reverse pass applies activations again, and a ReLU does not change what a ReLU gave: with leaky ReLUs (slope 0.2)
    a small net of RR (width 16, 32² cells) stepped back with an error of 0.49 instead of 0.41.
    """
    parts: list[nn.Module] = []
    for inputs, outputs in pairwise((fields, *[width] * (LAYERS - 1), fields)):
        parts += [convolution(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class Coupling(nn.Module):
    """An affine coupling layer: one half of the channels stays, and scales and shifts the other half. It starts as the
    identity, as in Glow (Kingma & Dhariwal 2018).

    Args:
        channels: an even number.
        width: channels between the two convolutions that compute scale and shift.
        first: True if the first half is the one that stays.
    """

    def __init__(self, channels: int, width: int, first: bool) -> None:
        super().__init__()
        self.net = nn.Sequential(convolution(channels // 2, width), nn.LeakyReLU(0.2), convolution(width, channels))
        nn.init.zeros_(self.net[-1].weight)  # type: ignore[arg-type]
        nn.init.zeros_(self.net[-1].bias)  # type: ignore[arg-type]
        self.first = first

    def _halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The half that stays, and the one that is changed."""
        first, second = x.chunk(2, 1)
        return (first, second) if self.first else (second, first)

    def _joined(self, stays: Tensor, changed: Tensor) -> Tensor:
        return torch.cat((stays, changed) if self.first else (changed, stays), 1)

    def _scale_and_shift(self, stays: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift = self.net(stays).chunk(2, 1)
        return LARGEST * torch.tanh(scale / LARGEST), shift

    def forward(self, x: Tensor) -> Tensor:
        stays, changed = self._halves(x)
        scale, shift = self._scale_and_shift(stays)
        return self._joined(stays, changed * scale.exp() + shift)

    def inverse(self, y: Tensor) -> Tensor:
        """The x for which ``forward`` gives y."""
        stays, changed = self._halves(y)
        scale, shift = self._scale_and_shift(stays)
        return self._joined(stays, (changed - shift) * (-scale).exp())


class CouplingNet(nn.Module):
    """An invertible network (N, fields, H, W) → (N, fields, H, W), H and W even, as in RealNVP (Dinh et al. 2017): each
    2×2 block of cells becomes channels, and coupling layers change one half of these after the other.

    FrEIA has such layers, too. These are ours because they are forty lines, and need no further package.

    Args:
        width: channels between the two convolutions of a coupling layer.
    """

    def __init__(self, fields: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Coupling(4 * fields, width, first=i % 2 == 0) for i in range(COUPLINGS))

    def forward(self, x: Tensor) -> Tensor:
        x = F.pixel_unshuffle(x, 2)
        for layer in self.layers:
            x = layer(x)
        return F.pixel_shuffle(x, 2)

    def inverse(self, y: Tensor) -> Tensor:
        """The x for which ``forward`` gives y, but for rounding."""
        y = F.pixel_unshuffle(y, 2)
        for layer in reversed(self.layers):
            y = layer.inverse(y)  # type: ignore[operator]
        return F.pixel_shuffle(y, 2)


def coupling_net(fields: int, parameters: int) -> CouplingNet:
    """A coupling network with about so many parameters."""
    one, two = (count_parameters(CouplingNet(fields, width)) for width in (1, 2))
    return CouplingNet(fields, max(1, 1 + round((parameters - one) / (two - one))))


def count_parameters(model: nn.Module) -> int:
    """Number of a network's parameters."""
    return sum(parameter.numel() for parameter in model.parameters())

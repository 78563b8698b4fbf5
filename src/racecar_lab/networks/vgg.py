"""VGG: a sequence of 3×3 convolutions and max poolings (Simonyan and Zisserman 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

Layout = Sequence[int | str]
"""Channels of each convolution; "M" is a max pooling that halves the picture."""

NARROW: Layout = (32, 32, "M", 64, 64, "M", 128, 128, 128, "M")
"""Layers of VGG7 at half the width, so that operations other than convolutions take twice the share of a step."""
VGG7: Layout = (64, 64, "M", 128, 128, "M", 256, 256, 256, "M")
VGG16: Layout = (*VGG7, 512, 512, 512, "M", 512, 512, 512, "M")
"""Layers of VGG16, with thirteen convolutions; ``vgg(VGG16)`` is the net for 32×32 pictures."""
VGG19: Layout = (64, 64, "M", 128, 128, "M", *(256,) * 4, "M", *(512,) * 4, "M", *(512,) * 4, "M")


class VGG(nn.Module):
    """A VGG network of ``features``, ``avgpool`` and ``classifier``, which are torchvision's names."""

    def __init__(self, features: nn.Sequential, side: int, classifier: nn.Sequential) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d(side)
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """The logits of pictures: x (N, channels, H, W) → (N, classes)."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def vgg(
    layout: Layout = VGG16,
    *,
    norm: bool = True,
    classes: int = 10,
    size: int = 32,
    channels: int = 3,
    hidden: Sequence[int] = (),
    dropout: float = 0.5,
) -> VGG:
    """A VGG network of any depth.

    Args:
        layout: its convolutions and poolings.
        norm: whether there is batch norm after each convolution.
        classes: number of outputs.
        size: height and width of the pictures.
        channels: number of channels of the pictures.
        hidden: widths of the linear layers before the last one.
        dropout: probability of the dropout after each of these hidden layers.
    """
    parts: list[nn.Module] = []
    width = channels
    for entry in layout:
        if isinstance(entry, str):
            parts.append(nn.MaxPool2d(2))
            size //= 2
        else:
            parts.append(nn.Conv2d(width, entry, 3, padding=1))
            width = entry
            parts += [nn.BatchNorm2d(width)] if norm else []
            parts.append(nn.ReLU(inplace=True))
    if size < 1:
        raise ValueError("the layout halves the pictures to nothing: give a larger size or fewer 'M'")
    widths = [width * size * size, *hidden]
    head: list[nn.Module] = []
    for before, after in pairwise(widths):
        head += [nn.Linear(before, after), nn.ReLU(inplace=True), nn.Dropout(dropout)]
    model = VGG(nn.Sequential(*parts), size, nn.Sequential(*head, nn.Linear(widths[-1], classes)))
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(module.bias)  # type: ignore[arg-type]  # these convolutions have one
    return model


def vgg19(classes: int = 1000, size: int = 224, dropout: float = 0.5) -> VGG:
    """VGG19 with batch norm; takes torchvision's weights of ``vgg19_bn``."""
    return vgg(VGG19, classes=classes, size=size, hidden=(4096, 4096), dropout=dropout)

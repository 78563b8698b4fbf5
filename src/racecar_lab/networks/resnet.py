"""ResNets: with bottlenecks for ImageNet, and thin and deep for CIFAR (He et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A padded convolution without bias."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    """The base class of residual blocks: convolutions ``conv1``, ``bn1``, ``conv2``, … beside a shortcut, which has a
    convolution ``downsample`` if the sizes differ."""

    expansion = 1

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def shortcut(self, x: Tensor) -> Tensor:
        return x if self.downsample is None else self.downsample(x)


class Basic(Block):
    """A residual block of two 3×3 convolutions."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1, self.bn1 = conv(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """The output of the block: x (N, inputs, H, W) → (N, width, H/stride, W/stride)."""
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class Bottleneck(Block):
    """A residual block of three convolutions: 1×1 to ``width`` channels, 3×3, and 1×1 to four times as many."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, 4 * width, stride)
        self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)

    def forward(self, x: Tensor) -> Tensor:
        """The output of the block: x (N, inputs, H, W) → (N, 4·width, H/stride, W/stride)."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.relu(self.bn3(self.conv3(out)) + self.shortcut(x))


class ResNet(nn.Module):
    """A ResNet: stages ``layer1``, ``layer2``, … of residual blocks, each of which but the first halves the picture and
    doubles the channels.

    Args:
        block: Basic or Bottleneck.
        counts: number of blocks in each stage.
        width: channels of the first stage (the narrow ones of a bottleneck).
        classes: number of outputs.
        large: start with a 7×7 convolution of stride 2 and a max pooling, for 224 pixels; else with a 3×3 one.
    """

    def __init__(
        self, block: type[Basic | Bottleneck], counts: Sequence[int], width: int, classes: int, large: bool
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(3, width, 7, 2) if large else conv(3, width, 3), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1) if large else None
        self.stages = [f"layer{i + 1}" for i in range(len(counts))]
        channels = width
        for i, (name, count) in enumerate(zip(self.stages, counts, strict=True)):
            blocks = []
            for j in range(count):
                blocks.append(block(channels, width * 2**i, 2 if i and not j else 1))
                channels = width * 2**i * block.expansion
            self.add_module(name, nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def blocks(self) -> list[Basic | Bottleneck]:
        """All residual blocks, in forward order."""
        return [block for name in self.stages for block in self.get_submodule(name)]  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        """The logits of pictures: x (N, 3, H, W) → (N, classes)."""
        x = self.relu(self.bn1(self.conv1(x)))
        if self.maxpool is not None:
            x = self.maxpool(x)
        for block in self.blocks():
            x = block(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet50(classes: int = 1000, width: int = 64) -> ResNet:
    """ResNet50 with the stride in the 3×3 convolutions; takes torchvision's weights of ``resnet50``."""
    return ResNet(Bottleneck, (3, 4, 6, 3), width, classes, large=True)


def cifar_resnet(depth: int = 110, classes: int = 10, width: int = 16) -> ResNet:
    """A ResNet of ``depth`` = 6n + 2 layers for 32×32 pictures; the paper's has 110. Its shortcuts are strided 1×1
    convolutions where sizes change."""
    count, rest = divmod(depth - 2, 6)
    if rest or count < 1:
        raise ValueError(f"a CIFAR ResNet has 6n + 2 layers (8, 14, 20, …, 110), not {depth}")
    return ResNet(Basic, (count,) * 3, width, classes, large=False)

"""Convolutional networks (and the Mixer) in plain torch, as small as one likes."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# VGG16's thirteen convolutions, in multiples of the first width; "M" halves the picture.
VGG_LAYOUT = (1, 1, "M", 2, 2, "M", 4, 4, 4, "M", 8, 8, 8, "M", 8, 8, 8, "M")


def vgg(convs: int = 13, width: int = 64, norm: bool = True, size: int = 32, classes: int = 10) -> nn.Sequential:
    """The first `convs` convolutions of VGG16, pooled where VGG16 pools, and one linear layer.

    `vgg()` is the 13-conv net for 32×32 pictures that the benchmarks use. Parts: `features`, `flatten`, `classifier`.
    """
    layers: list[nn.Module] = []
    channels, made = 3, 0
    for entry in VGG_LAYOUT:
        if entry == "M":
            layers.append(nn.MaxPool2d(2))
            size //= 2
            if made == convs:
                break
        elif made < convs:
            layers.append(nn.Conv2d(channels, width * entry, 3, padding=1))
            channels = width * entry
            if norm:
                layers.append(nn.BatchNorm2d(channels))
            layers.append(nn.ReLU(inplace=True))
            made += 1
    classifier = nn.Linear(channels * size * size, classes)
    return nn.Sequential(
        OrderedDict(features=nn.Sequential(*layers), flatten=nn.Flatten(), classifier=classifier),
    )


def paper_net() -> nn.Sequential:
    """The paper's example: C(5,20)+BN+relu → MP → C(4,40)+BN+tanh → MP → C(3,60)+BN+sigmoid."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 20, 5, padding="same"),
            bn1=nn.BatchNorm2d(20),
            relu=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(20, 40, 4, padding="same"),
            bn2=nn.BatchNorm2d(40),
            tanh=nn.Tanh(),
            pool2=nn.MaxPool2d(2),
            conv3=nn.Conv2d(40, 60, 3, padding="same"),
            bn3=nn.BatchNorm2d(60),
            sigmoid=nn.Sigmoid(),
        )
    )


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class PadShortcut(nn.Module):
    """CIFAR ResNet's shortcut without weights: every other pixel, and zeros for the new channels."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.extra = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2))


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: str):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv3x3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            if shortcut == "conv":
                conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))
            else:
                self.shortcut = PadShortcut(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.shortcut is None else self.shortcut(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class PreactBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), conv3x3(inputs, outputs, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), conv3x3(outputs, outputs)
        self.shortcut = None if stride == 1 and inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(x), inplace=True)
        identity = x if self.shortcut is None else self.shortcut(out)
        out = self.conv1(out)
        out = self.conv2(F.relu(self.bn2(out), inplace=True))
        return out + identity


def blocks_per_stage(depth: int) -> int:
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"a CIFAR ResNet has 6n+2 layers, not {depth}")
    return blocks


class ResNet(nn.Module):
    """CIFAR ResNet of depth 6n+2 (110: the paper's): three stages of n basic blocks. `shortcut` is "conv" or "pad"."""

    def __init__(self, depth: int = 110, width: int = 16, shortcut: str = "pad", classes: int = 10):
        super().__init__()
        blocks = blocks_per_stage(depth)
        self.conv1, self.bn1, self.relu = conv3x3(3, width), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        stages, channels = [], width
        for stage in range(3):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(BasicBlock(channels, width * 2**stage, stride, shortcut))
                channels = width * 2**stage
        self.blocks = nn.Sequential(*stages)
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.pool(x), 1))


class PreactResNet(nn.Module):
    """Norm and activation before each convolution; only the last norm stands after the last join."""

    def __init__(self, depth: int = 20, width: int = 16, classes: int = 10):
        super().__init__()
        blocks = blocks_per_stage(depth)
        self.conv1 = conv3x3(3, width)
        stages, channels = [], width
        for stage in range(3):
            for block in range(blocks):
                stages.append(PreactBlock(channels, width * 2**stage, 2 if stage > 0 and block == 0 else 1))
                channels = width * 2**stage
        self.blocks, self.bn, self.fc = nn.Sequential(*stages), nn.BatchNorm2d(channels), nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.blocks(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(inputs), conv3x3(inputs, growth)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


class DenseNet(nn.Module):
    def __init__(self, layers: Sequence[int] = (3, 3), growth: int = 4, width: int = 8, classes: int = 10):
        super().__init__()
        parts: list[nn.Module] = [conv3x3(3, width)]
        channels = width
        for block, count in enumerate(layers):
            if block > 0:  # the transition
                conv = nn.Conv2d(channels, channels // 2, 1, bias=False)
                parts += [nn.BatchNorm2d(channels), nn.ReLU(), conv, nn.AvgPool2d(2)]
                channels //= 2
            for _ in range(count):
                parts.append(DenseLayer(channels, growth))
                channels += growth
        self.features = nn.Sequential(*parts, nn.BatchNorm2d(channels), nn.ReLU())
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.features(x), 1)
        return self.classifier(x.flatten(1))


def two_convs(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        *(conv3x3(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)),
        *(conv3x3(outputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)),
    )


def upsampling(inputs: int, outputs: int, up: str) -> nn.Module:
    if up == "transpose":
        return nn.ConvTranspose2d(inputs, outputs, 2, stride=2)
    return nn.Sequential(nn.Upsample(scale_factor=2, mode=up), nn.Conv2d(inputs, outputs, 1))


class UNet(nn.Module):
    """Up by `up`: "transpose" (a strided transposed convolution), "nearest" or "bilinear" (then a 1×1 convolution)."""

    def __init__(self, width: int = 4, depth: int = 2, up: str = "transpose", outputs: int = 1):
        super().__init__()
        channels = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(two_convs(*pair) for pair in zip([3, *channels[:-1]], channels, strict=True))
        self.up = nn.ModuleList(upsampling(2 * n, n, up) for n in reversed(channels[:-1]))
        self.merge = nn.ModuleList(two_convs(2 * n, n) for n in reversed(channels[:-1]))
        self.head = nn.Conv2d(width, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([skips.pop(), up(x)], 1))
        return self.head(x)


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, channels: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norm1(x).permute(0, 2, 1)).permute(0, 2, 1)
        return x + self.channels(self.norm2(x))


class MlpMixer(nn.Module):
    def __init__(self, size: int = 16, patch: int = 4, channels: int = 12, blocks: int = 2, classes: int = 10):
        super().__init__()
        self.patches = nn.Conv2d(3, channels, patch, stride=patch)
        self.blocks = nn.Sequential(*(MixerBlock((size // patch) ** 2, channels) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(channels), nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).permute(0, 2, 1)
        return self.head(self.norm(self.blocks(x)).mean(1))


def mlp(widths: Sequence[int], activation: type[nn.Module] = nn.ReLU, norm: bool = False) -> nn.Sequential:
    """Linear layers of the given widths, an activation after each but the last."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), *([nn.BatchNorm1d(after)] if norm else []), activation()]
    return nn.Sequential(*(layers[:-2] if norm else layers[:-1]))

"""The small nets of few-labels and shift: three blocks of convolutions, each of which halves the picture."""

from __future__ import annotations

import math

from torch import nn

from racecar_lab.experiments.shared import started, three_blocks
from racecar_lab.networks.vgg import VGG

SIDES = {"digits": (5, 5), "blur": (10, 0), "cifar": (5, 5)}
"""Task → two class numbers: the source task has the classes below the first, the new task those from the second on."""
WIDTHS = {"digits": (20, 40, 60), "blur": (20, 40, 60), "cifar": (32, 64, 128)}
"""Task → number of channels in each of the net's three blocks."""
GROUPS = 4
"""Number of groups of each group norm in a small net."""


def pictures(task: str) -> tuple[int, int]:
    """Side (height and width) and number of channels of a task's pictures."""
    return (32, 3) if task == "cifar" else (28, 1)


def small_net(task: str, depth: int, norm: str, start: str) -> VGG:
    """Make a classifier for the source task's classes. The initial weights are the same for every norm.

    Args:
        task: one of ``WIDTHS``.
        depth: number of convolutions: 3, 6, 9 …
        norm: the norm after each of them: "none", "batch" or "group".
        start: their initial weights, one of ``FIRST_WEIGHTS``.
    """
    size, channels = pictures(task)
    model = three_blocks(
        WIDTHS[task], depth, norm=norm != "none", start=start, size=size, channels=channels, classes=SIDES[task][0]
    )
    for i, module in enumerate(model.features):
        if isinstance(module, nn.BatchNorm2d) and norm == "group":
            model.features[i] = nn.GroupNorm(GROUPS, module.num_features)
    return model


def convolutions(depth: int, norm: str, layers: str = "all") -> list[str]:
    """Names of the small net's convolutions in "all" blocks, in the first ("early") or in the last ("late")."""
    per_block = depth // 3
    stride = 2 if norm == "none" else 3  # convolution, norm if any, ReLU
    blocks = {"all": range(3), "early": range(1), "late": range(2, 3)}[layers]
    return [f"features.{block * (per_block * stride + 1) + i * stride}" for block in blocks for i in range(per_block)]


def autoencoder(task: str, depth: int, norm: str, start: str) -> nn.Sequential:
    """Make an autoencoder, (N, C, H, W) → the same shape: the small net's convolutions, then their mirror image as the
    decoder.

    All are narrower than the net's by √2, so that both halves together have about as many weights as the net. The
    decoder repeats pixels where the encoder pools; its last convolution has no norm and no ReLU.
    """
    size, channels = pictures(task)
    widths = [round(width / math.sqrt(2)) for width in WIDTHS[task]]
    encoder = three_blocks(widths, depth, norm=norm == "batch", start=start, size=size, channels=channels).features
    sizes = [size // 2**i for i in range(3)]
    parts: list[nn.Module] = []
    for outer, width, side in reversed(list(zip((channels, *widths), widths, sizes, strict=False))):
        parts.append(nn.Upsample(size=(side, side)))
        for outputs in (*[width] * (depth // 3 - 1), outer):
            parts.append(nn.Conv2d(width, outputs, 3, padding=1))
            parts += [nn.BatchNorm2d(outputs)] if norm == "batch" else []
            parts.append(nn.ReLU(inplace=True))
    last = max(i for i, part in enumerate(parts) if isinstance(part, nn.Conv2d))
    return nn.Sequential(*encoder, *started(nn.Sequential(*parts[: last + 1]), start))

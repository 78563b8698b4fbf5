"""The small nets of few-labels and shift: three blocks of convolutions, each of which halves the picture."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from racecar_lab.experiments.shared import started, three_blocks
from racecar_lab.networks.vgg import VGG

SIDES = {"digits": (5, 5), "blur": (10, 0), "cifar": (5, 5)}
"""Classes below the first number are the source's, from the second on the new task's."""
WIDTHS = {"digits": (20, 40, 60), "blur": (20, 40, 60), "cifar": (32, 64, 128)}
"""Channels of the three blocks; the picture is halved after each."""
GROUPS = 4
"""Of group norm."""


def pictures(task: str) -> tuple[int, int]:
    """Height (and width) and channels of a task's pictures."""
    return (32, 3) if task == "cifar" else (28, 1)


def small_net(task: str, depth: int, norm: str, start: str) -> VGG:
    """A classifier of the source's classes. First weights are the same for every norm.

    Args:
        task: one of ``WIDTHS``.
        depth: convolutions: 3, 6, 9 …
        norm: after each of them: "none", "batch" or "group".
        start: their first weights, one of ``FIRST_WEIGHTS``.
    """
    size, channels = pictures(task)
    how: dict[str, Any] = {"norm": norm != "none", "start": start, "classes": SIDES[task][0]}
    model = three_blocks(WIDTHS[task], depth, size=size, channels=channels, **how)
    for i, module in enumerate(model.features):
        if isinstance(module, nn.BatchNorm2d) and norm == "group":
            model.features[i] = nn.GroupNorm(GROUPS, module.num_features)
    return model


def convolutions(depth: int, norm: str, layers: str = "all") -> list[str]:
    """Names of the net's convolutions: of "all" blocks, the "early" one or the "late" one."""
    each = depth // 3
    stride = 2 if norm == "none" else 3  # convolution, norm, ReLU
    blocks = {"all": range(3), "early": range(1), "late": range(2, 3)}[layers]
    return [f"features.{block * (each * stride + 1) + i * stride}" for block in blocks for i in range(each)]


def autoencoder(task: str, depth: int, norm: str, start: str) -> nn.Sequential:
    """The net's convolutions, and the same ones mirrored, from the features back to the picture: (N, C, H, W) → same.

    All are narrower by √2, so that both halves together have about as many weights as the net. Pooling is mirrored by
    repeating pixels; the last convolution has no norm and no ReLU.
    """
    size, channels = pictures(task)
    widths, each = [round(width / math.sqrt(2)) for width in WIDTHS[task]], depth // 3
    how: dict[str, Any] = {"norm": norm == "batch", "start": start}
    encoder = three_blocks(widths, depth, size=size, channels=channels, **how).features
    sizes = [size // 2**i for i in range(3)]
    parts: list[nn.Module] = []
    for before, width, side in reversed(list(zip((channels, *widths), widths, sizes, strict=False))):
        parts.append(nn.Upsample(size=(side, side)))
        for after in (*[width] * (each - 1), before):
            parts.append(nn.Conv2d(width, after, 3, padding=1))
            parts += [nn.BatchNorm2d(after)] if norm == "batch" else []
            parts.append(nn.ReLU(inplace=True))
    last = max(i for i, part in enumerate(parts) if isinstance(part, nn.Conv2d))
    return nn.Sequential(*encoder, *started(nn.Sequential(*parts[: last + 1]), start))

"""The peak data of the paper, made from a seed: a peak at the top left or bottom right, and random scribbles."""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from racecar_lab.training import rng

SIZE, COUNT = 28, 110
CENTRES = ((7.0, 7.0), (20.0, 20.0))
WIDTH = 3.0
"""Standard deviation of a peak, in pixels."""
STROKE = 40
"""Number of steps of the random walk that draws a scribble, each of which marks a pixel."""
INK = 0.6
"""Brightness of a scribble; the top of a peak has 1."""


def load(seed: int) -> tuple[Tensor, Tensor]:
    """The peak data: pictures (110, 1, 28, 28) with values 0–255, and their labels (110,), alternating: 0 top left, 1
    bottom right."""
    labels = torch.arange(COUNT) % 2
    return ((peaks()[labels] + INK * _scribbles(seed)).clamp(max=1) * 255).unsqueeze(1), labels


def peaks() -> Tensor:
    """The two peaks without scribbles, (2, 28, 28), in [0, 1]."""
    grid = torch.arange(float(SIZE))
    return torch.stack(
        [
            torch.exp(-((grid[:, None] - row) ** 2 + (grid[None, :] - column) ** 2) / (2 * WIDTH**2))
            for row, column in CENTRES
        ]
    )


@lru_cache(16)
def _scribbles(seed: int) -> Tensor:
    """Scribbles (110, 28, 28), cached for all jobs of a seed."""
    generator = rng.generator("peaks", seed)
    return torch.stack([_scribble(generator) for _ in range(COUNT)])


def _scribble(generator: torch.Generator) -> Tensor:
    """A scribble (28, 28): 1 on a random walk that changes its direction slowly, else 0."""
    pixels = []
    ranges = torch.tensor([SIZE - 1, SIZE - 1, math.tau])
    row, column, direction = torch.rand(3, generator=generator).mul(ranges).tolist()
    for turn in (torch.rand(STROKE, generator=generator) - 0.5).mul(1.5).tolist():
        direction += turn
        row = min(max(row + math.sin(direction), 0), SIZE - 1)
        column = min(max(column + math.cos(direction), 0), SIZE - 1)
        pixels.append(SIZE * int(row) + int(column))
    return torch.zeros(SIZE * SIZE).index_fill_(0, torch.tensor(pixels), 1).view(SIZE, SIZE)

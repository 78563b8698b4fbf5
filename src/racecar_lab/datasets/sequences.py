"""Sequences: two numbers to add and symbols to remember, made from a seed; pictures with their pixels mixed up."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar_lab.training import rng

SYMBOLS, ITEMS = 8, 5
"""To remember: so many of so many kinds."""
BLANK, GO = SYMBOLS, SYMBOLS + 1
"""What else a step of ``copying`` may show."""
SIDE = 28


def adding(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Numbers in [0, 1] beside marks, x (count, length, 2), and y (count,), the sum of the two that are marked: one in
    either half (Hochreiter & Schmidhuber 1997)."""
    numbers = torch.rand(count, length, generator=generator)
    middle = length // 2
    places = torch.stack(
        [
            torch.randint(0, middle, (count,), generator=generator),
            torch.randint(middle, length, (count,), generator=generator),
        ],
        1,
    )
    marks = torch.zeros(count, length).scatter(1, places, 1.0)
    return torch.stack([numbers, marks], 2), numbers.gather(1, places).sum(1)


def copying(count: int, gap: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Symbols y (count, ITEMS), and what is seen, x (count, 2 · ITEMS + gap, SYMBOLS + 2), one-hot: the symbols, a gap
    of blanks, and from a sign on ITEMS steps in which they must be said again. No two samples have the same symbols."""
    kinds = SYMBOLS**ITEMS
    if count > kinds:
        raise ValueError(f"{count} samples are asked for: there are {kinds} with different symbols")
    codes = torch.randperm(kinds, generator=generator)[:count]
    y = codes.unsqueeze(1) // SYMBOLS ** torch.arange(ITEMS) % SYMBOLS
    seen = torch.full((count, 2 * ITEMS + gap), BLANK)
    seen[:, :ITEMS] = y
    seen[:, ITEMS + gap] = GO
    return F.one_hot(seen, SYMBOLS + 2).float(), y


@cache
def places() -> Tensor:
    """(784,): the order in which a picture's pixels are read, the same everywhere."""
    return torch.randperm(SIDE * SIDE, generator=rng.generator("sequences", "pixels"))


def rows(pictures: Tensor) -> Tensor:
    """Pictures (N, 1, 28, 28) with values 0–255 as 28 steps of 28 pixels in [0, 1], mixed up: (N, 28, 28)."""
    return (pictures.flatten(1)[:, places()].float() / 255).unflatten(1, (SIDE, SIDE))

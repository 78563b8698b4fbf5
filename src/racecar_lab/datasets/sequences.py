"""Sequences: the adding and the copying problem, made from a seed, and pictures whose pixels are permuted."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar_lab.training import rng

SYMBOLS, ITEMS = 8, 5
"""Number of different symbols, and number of symbols to remember, in the copying problem."""
BLANK, GO = SYMBOLS, SYMBOLS + 1
"""Codes of the two inputs of the copying problem that are no symbols: a blank, and the sign to repeat the symbols."""
SIDE = 28


def adding(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The adding problem (Hochreiter & Schmidhuber 1997): x (count, length, 2), numbers in [0, 1] and marks, and y
    (count,), the sum of the two marked numbers, one in each half."""
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
    """The copying problem: one-hot inputs x (count, 2 · ITEMS + gap, SYMBOLS + 2), and targets y (count, ITEMS), the
    symbols. The input is the symbols, a gap of blanks, and GO, from which on the symbols must be repeated. All samples
    have different symbols."""
    kinds = SYMBOLS**ITEMS
    if count > kinds:
        raise ValueError(f"{count} samples are asked for: there are {kinds} with different symbols")
    codes = torch.randperm(kinds, generator=generator)[:count]
    y = codes.unsqueeze(1) // SYMBOLS ** torch.arange(ITEMS) % SYMBOLS
    inputs = torch.full((count, 2 * ITEMS + gap), BLANK)
    inputs[:, :ITEMS] = y
    inputs[:, ITEMS + gap] = GO
    return F.one_hot(inputs, SYMBOLS + 2).float(), y


@cache
def places() -> Tensor:
    """The fixed random order in which the pixels of a 28 × 28 picture are read: their indices, (784,)."""
    return torch.randperm(SIDE * SIDE, generator=rng.generator("sequences", "pixels"))


def rows(pictures: Tensor) -> Tensor:
    """Pictures (N, 1, 28, 28) with values 0–255 as 28 steps of 28 permuted pixels in [0, 1]: (N, 28, 28)."""
    return (pictures.flatten(1)[:, places()].float() / 255).unflatten(1, (SIDE, SIDE))

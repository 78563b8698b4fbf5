"""Random flips, turns, shifts and sizes of pictures, on the device, from numbers that the seed gives beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar_lab.training import rng
from racecar_lab.training.recipe import Recipe


def draw(recipe: Recipe, shape: Sequence[int], seed: int, stage: str, epoch: int) -> Tensor | None:
    """All that is random in an epoch's augmentation, (steps, batch, …), ``shape`` being (steps, batch); None: nothing
    is."""
    if recipe.symmetries:
        return torch.randint(2, (*shape, 3), generator=rng.generator("symmetries", seed, stage, epoch))
    if not recipe.shift and not recipe.zoom:
        return None
    moved = moves(recipe.shift, shape, seed, stage, epoch, recipe.flip)
    if not recipe.zoom:
        return moved
    even = torch.rand(*shape, 1, generator=rng.generator("zooms", seed, stage, epoch))
    return torch.cat((moved.float(), 1 + recipe.zoom * (2 * even - 1)), 2)


def apply(recipe: Recipe, x: Tensor, drawn: Tensor) -> Tensor:
    """Samples (N, …), augmented by what was drawn for them, (N, …)."""
    if recipe.symmetries:
        return turned(x, drawn)
    return warp(x, drawn, recipe.shift) if recipe.zoom else move(x, drawn, recipe.shift)


def moves(shift: int, shape: Sequence[int], seed: int, stage: str, epoch: int, flip: bool = True) -> Tensor:
    """For an epoch, ``shape`` being (steps, batch): (steps, batch, 3), whether a picture is flipped, and where it is
    cut out, from above and from the left, of one with ``shift`` pixels more on every side. Without ``flip`` none is
    flipped."""
    generator = rng.generator("moves", seed, stage, epoch)
    flips = torch.randint(2, (*shape, 1), generator=generator)
    corners = torch.randint(2 * shift + 1, (*shape, 2), generator=generator)
    return torch.cat((flips if flip else torch.zeros_like(flips), corners), 2)


def move(x: Tensor, moves: Tensor, shift: int) -> Tensor:
    """Pictures (N, C, H, W), each flipped and shifted by its own move (N, 3); what comes in from outside is 0."""
    samples, channels, height, width = x.shape
    flip, top, left = moves.unbind(1)
    across = torch.arange(width, device=x.device)
    columns = torch.where(flip.bool().unsqueeze(1), width - 1 - across, across) + left.unsqueeze(1)
    rows = torch.arange(height, device=x.device) + top.unsqueeze(1)
    which = torch.arange(samples, device=x.device).view(-1, 1, 1, 1)
    colours = torch.arange(channels, device=x.device).view(1, -1, 1, 1)
    padded = F.pad(x, (shift, shift, shift, shift))
    return padded[which, colours, rows[:, None, :, None], columns[:, None, None, :]]


def warp(x: Tensor, drawn: Tensor, shift: int) -> Tensor:
    """Pictures (N, C, H, W), each flipped and shifted as in ``move``, and made larger about its middle; what comes in
    from outside is 0.

    Args:
        drawn: (N, 4): a move, and how many times as large.
    """
    flip, top, left, times = drawn.unbind(1)

    def places(side: int, way: Tensor, corner: Tensor) -> Tensor:
        """Where the pixels of each picture come from, (N, side), from -1 to 1."""
        even = (2 * torch.arange(side, device=x.device) + 1) / side - 1
        return (way / times).unsqueeze(1) * even + (2 * (corner - shift) / side).unsqueeze(1)

    down, across = places(x.shape[2], torch.ones_like(flip), top), places(x.shape[3], 1 - 2 * flip, left)
    grid = torch.stack(torch.broadcast_tensors(across.unsqueeze(1), down.unsqueeze(2)), 3)
    return F.grid_sample(x, grid, align_corners=False)


def turned(x: Tensor, ways: Tensor) -> Tensor:
    """Square pictures (N, C, S, S), each in one of the eight ways in which a square can lie.

    Args:
        ways: (N, 3): whether rows, and columns, are read backwards, and whether they change places.
    """
    samples, channels, height, width = x.shape
    if height != width:
        raise ValueError(f"symmetries: pictures must be square, not {height} × {width}")
    down, across, swapped = ways.bool().view(samples, 3, 1, 1).unbind(1)
    rows, columns = torch.arange(height, device=x.device).view(-1, 1), torch.arange(width, device=x.device).view(1, -1)
    rows, columns = torch.where(swapped, columns, rows), torch.where(swapped, rows, columns)
    rows = torch.where(down, height - 1 - rows, rows).unsqueeze(1)
    columns = torch.where(across, width - 1 - columns, columns).unsqueeze(1)
    which = torch.arange(samples, device=x.device).view(-1, 1, 1, 1)
    colours = torch.arange(channels, device=x.device).view(1, -1, 1, 1)
    return x[which, colours, rows, columns]

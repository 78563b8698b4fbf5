"""Augmentation: random flips, rotations, shifts and zooms of pictures on the device, drawn beforehand from the seed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from racecar_lab.training import rng
from racecar_lab.training.recipe import Recipe


def draw(recipe: Recipe, shape: Sequence[int], seed: int, stage: str, epoch: int) -> Tensor | None:
    """The random numbers of an epoch's augmentation, (steps, batch, numbers); None if the recipe has no augmentation.

    Args:
        shape: number of steps in the epoch, and of samples in a batch.
    """
    if recipe.symmetries:
        return torch.randint(2, (*shape, 3), generator=rng.generator("symmetries", seed, stage, epoch))
    if not recipe.shift and not recipe.zoom:
        return None
    flips_and_shifts = moves(recipe.shift, shape, seed, stage, epoch, recipe.flip)
    if not recipe.zoom:
        return flips_and_shifts
    uniform = torch.rand(*shape, 1, generator=rng.generator("zooms", seed, stage, epoch))
    return torch.cat((flips_and_shifts.float(), 1 + recipe.zoom * (2 * uniform - 1)), 2)


def apply(recipe: Recipe, x: Tensor, drawn: Tensor) -> Tensor:
    """Augment samples (N, …) by the random numbers that ``draw`` gave for them, (N, numbers)."""
    if recipe.symmetries:
        return symmetry(x, drawn)
    return warp(x, drawn, recipe.shift) if recipe.zoom else move(x, drawn, recipe.shift)


def moves(shift: int, shape: Sequence[int], seed: int, stage: str, epoch: int, flip: bool = True) -> Tensor:
    """Random flips and shifts of an epoch, (steps, batch, 3): whether a picture is flipped (0 or 1), and the upper and
    left edge at which it is cut out of the picture padded by ``shift`` pixels on every side.

    Args:
        shift: the largest shift in pixels.
        shape: number of steps in the epoch, and of samples in a batch.
        flip: whether pictures are flipped, too.
    """
    generator = rng.generator("moves", seed, stage, epoch)
    flips = torch.randint(2, (*shape, 1), generator=generator)
    corners = torch.randint(2 * shift + 1, (*shape, 2), generator=generator)
    return torch.cat((flips if flip else torch.zeros_like(flips), corners), 2)


def move(x: Tensor, moves: Tensor, shift: int) -> Tensor:
    """Flip and shift each of the pictures (N, C, H, W) by its own move, padding with 0.

    Args:
        moves: (N, 3): 1 if the picture is flipped, else 0, and the upper and left edge at which it is cut out of the
            padded picture.
        shift: number of pixels of padding on every side.
    """
    height, width = x.shape[2:]
    flip, top, left = moves.unbind(1)
    columns = torch.arange(width, device=x.device)
    columns = torch.where(flip.bool().unsqueeze(1), width - 1 - columns, columns) + left.unsqueeze(1)
    rows = torch.arange(height, device=x.device) + top.unsqueeze(1)
    return _pixels(F.pad(x, (shift,) * 4), rows.unsqueeze(2), columns.unsqueeze(1))


def warp(x: Tensor, drawn: Tensor, shift: int) -> Tensor:
    """Flip, shift and zoom each of the pictures (N, C, H, W) about its centre, padding with 0.

    Args:
        drawn: (N, 4): 1 if the picture is flipped, else 0; the upper and left edge at which it is cut out of the padded
            picture; the factor of the zoom.
        shift: number of pixels of padding on every side.
    """
    flip, top, left, factor = drawn.unbind(1)

    def positions(side: int, sign: Tensor, corner: Tensor) -> Tensor:
        """The positions in each picture from which its new pixels are taken, along one side, (N, side); the picture
        reaches from -1 to 1."""
        centres = (2 * torch.arange(side, device=x.device) + 1) / side - 1
        return (sign / factor).unsqueeze(1) * centres + (2 * (corner - shift) / side).unsqueeze(1)

    vertical = positions(x.shape[2], torch.ones_like(flip), top)
    horizontal = positions(x.shape[3], 1 - 2 * flip, left)
    grid = torch.stack(torch.broadcast_tensors(horizontal.unsqueeze(1), vertical.unsqueeze(2)), 3)
    return F.grid_sample(x, grid, align_corners=False)


def symmetry(x: Tensor, drawn: Tensor) -> Tensor:
    """Map each of the square pictures (N, C, S, S) by one of the eight symmetries of the square.

    Args:
        drawn: (N, 3), each 0 or 1: reverse the rows, reverse the columns, swap rows and columns.
    """
    height, width = x.shape[2:]
    if height != width:
        raise ValueError(f"symmetries: pictures must be square, not {height} × {width}")
    reverse_rows, reverse_columns, swap = drawn.bool().view(-1, 3, 1, 1).unbind(1)
    rows, columns = torch.arange(height, device=x.device).view(-1, 1), torch.arange(width, device=x.device).view(1, -1)
    rows, columns = torch.where(swap, columns, rows), torch.where(swap, rows, columns)
    rows = torch.where(reverse_rows, height - 1 - rows, rows)
    return _pixels(x, rows, torch.where(reverse_columns, width - 1 - columns, columns))


def _pixels(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The pixels of pictures (N, C, …) at rows and columns that broadcast to (N, H, W): (N, C, H, W)."""
    sample = torch.arange(x.shape[0], device=x.device).view(-1, 1, 1, 1)
    channel = torch.arange(x.shape[1], device=x.device).view(1, -1, 1, 1)
    return x[sample, channel, rows.unsqueeze(1), columns.unsqueeze(1)]

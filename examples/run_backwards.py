"""What comes back when a net is run backwards, and how many gradient steps ``racecar.invert`` saves by it.

    python examples/run_backwards.py [--seeds 5]

A small net enlarges pictures from 6 × 6 to 12 × 12. It is measured untrained, after plain training, and after training
with the racecar loss, on pictures that it never saw. Nothing is downloaded; a seed takes about twenty seconds on one
core. docs/reverse.md shows the table.
"""

from __future__ import annotations

import argparse

import torch
from plain_loop import pictures
from torch import Tensor, nn
from torch.nn import functional as F

from racecar import Racecar, invert

MOST, ENOUGH = 100, 0.01
"""Gradient steps at most; the relative error of the output that is enough."""


def network() -> nn.Module:
    return nn.Sequential(
        nn.Upsample(scale_factor=2),
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 1, 5, padding=2),
    )


def train(rr: Racecar, x: Tensor, y: Tensor) -> None:
    optimiser = torch.optim.Adam(rr.parameters(), 3e-3)
    for _ in range(20):
        for batch in torch.randperm(len(x)).split(32):
            output, loss = rr(x[batch])
            optimiser.zero_grad()
            (F.mse_loss(output, y[batch]) + loss).backward()
            optimiser.step()


def correlation(rebuilt: Tensor | None, x: Tensor) -> float:
    """The mean over the pictures of the correlation of their pixels."""
    assert rebuilt is not None
    a, b = ((one - one.mean((1, 2, 3), keepdim=True)).flatten(1) for one in (rebuilt, x))
    return float(F.cosine_similarity(a, b).mean())


def steps(rr: Racecar, y: Tensor, start: Tensor | None) -> float:
    """The median over the pictures of the steps after which the output is near enough."""
    enough = invert(rr, y, MOST, start=start).errors <= ENOUGH
    return float(torch.where(enough.any(0), enough.float().argmax(0), MOST).float().median())


def measured(weight: float | None, seed: int) -> list[float]:
    """One row of the table, of one seed; ``weight``: λ, None for a net that is not trained."""
    torch.manual_seed(seed)
    (large, _), (held_large, _) = pictures(256, seed), pictures(64, 100 + seed)
    x, held = F.avg_pool2d(large, 2), F.avg_pool2d(held_large, 2)
    rr = Racecar(network(), x[:4], mode="full", weight=weight or 0)
    if weight is not None:
        train(rr, x, large)
    row = []
    for rr.mode in ("layerwise", "full"):
        row.append(correlation(rr.reconstruct(held)[0], held))
    with torch.no_grad():
        y = rr.model(held)
    random = x.mean() + x.std() * torch.randn_like(held)
    return [*row, *(steps(rr, y, start) for start in (None, random, x.mean().expand_as(held)))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    print(f"{'':20}correlation of the rebuilt input    steps to {ENOUGH:.0%}, median, from")
    print(f"{'':20}layer-wise        full              reverse     random      mean picture")
    for name, weight in (("untrained", None), ("plain training", 0.0), ("with racecar", 0.1)):
        columns = list(zip(*(measured(weight, seed) for seed in seeds), strict=True))
        ranges = [f"{min(column):.2f} to {max(column):.2f}" for column in columns[:2]]
        counts = [f"{min(column):.0f} to {max(column):.0f}" for column in columns[2:]]
        print(f"{name:20}{ranges[0]:18}{ranges[1]:18}{counts[0]:12}{counts[1]:12}{counts[2]}")


if __name__ == "__main__":
    main()

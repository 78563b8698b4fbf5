"""A net that learns one task after another: alone it ends near chance, with two more lines it goes on learning.

The same 128 points get new random labels again and again, of ten kinds: chance is 0.1. Nothing is downloaded.
docs/keep-learning.md says when this helps, and when it does not.

python examples/keep_learning.py [--tasks 10]
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional as F

from racecar import Racecar, presets
from racecar.inspect import PlasticityLog

POINTS, EPOCHS, BATCH = 128, 40, 32


def network() -> nn.Module:
    hidden = [part for width in (16, 64, 64, 64) for part in (nn.Linear(width, 64), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(64, 10))


def learn(keep: bool, tasks: int) -> None:
    """Train a net on every task in turn, and print how well it learned each."""
    torch.manual_seed(0)
    model, x = network(), torch.rand(POINTS, 16)
    rr = Racecar(model, x, **presets.keep_learning)  # the first line more
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    log = PlasticityLog(model, x)
    learned = []
    for _ in range(tasks):
        y = torch.randint(10, (POINTS,))
        for _ in range(EPOCHS):
            for batch in torch.randperm(POINTS).split(BATCH):
                output, loss = rr(x[batch]) if keep else (model(x[batch]), 0.0)  # the second
                optimiser.zero_grad()
                (F.cross_entropy(output, y[batch]) + loss).backward()
                optimiser.step()
        with torch.no_grad():
            learned.append(float((model(x).argmax(1) == y).float().mean()))
    log.look()
    name = "two more lines" if keep else "plain"
    print(f"{name}, after each task: {' '.join(f'{one:.2f}' for one in learned)}")
    print(f"{log}\n{name}: accuracy {learned[-1]:.3f}\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, default=10)
    tasks = parser.parse_args().tasks
    for keep in (False, True):
        learn(keep, tasks)


if __name__ == "__main__":
    main()

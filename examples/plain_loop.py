"""Your own training loop: two lines more. The loss, its terms, a schedule in time and a second phase without it.

python examples/plain_loop.py [--epochs 6]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar import Every, Racecar


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """(count, 1, 12, 12) of noise with a bar, and whether it lies or stands."""
    generator = torch.Generator().manual_seed(seed)
    x = 0.3 * torch.rand(count, 1, 12, 12, generator=generator)
    place, lies = torch.randint(12, (count,), generator=generator), torch.randint(2, (count,), generator=generator)
    for one, at, flat in zip(x, place.tolist(), lies.tolist(), strict=True):
        one[0, at if flat else slice(None), slice(None) if flat else at] += 0.7
    return x, lies


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    epochs = parser.parse_args().epochs
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    )
    (x, y), (test_x, test_y) = pictures(256, 0), pictures(256, 1)

    rr = Racecar(model, x[:4], weight=0.1, fraction=0.25)  # a quarter of each batch is enough
    every = Every(rr, 2)  # in every second step, with twice the weight
    print(rr.plan)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for epoch in range(epochs):
        if epoch == epochs - 2:
            rr.weight = 0.0  # the last epochs are the task's alone
        for some in torch.randperm(256).split(32):
            every.step()
            output, loss = rr(x[some])
            optimiser.zero_grad()
            (F.cross_entropy(output, y[some]) + loss).backward()
            optimiser.step()
        terms = ", ".join(f"{name} {term:.3f}" for name, term in rr.terms.items()) or "off"
        with torch.no_grad():
            right = (model(test_x).argmax(1) == test_y).float().mean()
        print(f"epoch {epoch}: accuracy {right:.3f}, reverse errors: {terms}")


if __name__ == "__main__":
    main()

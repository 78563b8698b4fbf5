"""Hugging Face Accelerate, with gradient accumulation: the Racecar is what is prepared.

    python examples/accelerate_loop.py [--epochs 3]

Needs accelerate. ``accelerate launch`` runs it on several devices as it is: DDP is around the Racecar, and so around
both losses. ``backward`` divides their sum by the number of accumulated batches.
"""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator
from plain_loop import pictures
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from racecar import Racecar


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    )
    data = TensorDataset(*pictures(256, 0))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    prepared = accelerator.prepare(Racecar(model, data.tensors[0][:4], weight=0.1), optimiser, DataLoader(data, 16))
    rr, optimiser, batches = prepared
    for epoch in range(epochs):
        for x, y in batches:
            with accelerator.accumulate(rr):
                output, loss = rr(x)
                accelerator.backward(F.cross_entropy(output, y) + loss)
                optimiser.step()
                optimiser.zero_grad()
        accelerator.print(f"epoch {epoch}: racecar loss {loss:.4f}")
    x, y = pictures(256, 1)
    with torch.no_grad():
        accelerator.print(f"accuracy {(model.to('cpu')(x).argmax(1) == y).float().mean():.3f}")


if __name__ == "__main__":
    main()

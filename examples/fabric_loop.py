"""Lightning Fabric: the Racecar is what is set up, so that precision and data parallelism see one module.

    python examples/fabric_loop.py [--epochs 3]

Needs lightning. With several devices Fabric wraps the Racecar, not the model, in DDP: gradients of both losses are
synchronised. The model itself stays usable for evaluation and checkpoints.
"""

from __future__ import annotations

import argparse

import torch
from lightning.fabric import Fabric
from plain_loop import pictures
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from racecar import Racecar


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    fabric.launch()
    fabric.seed_everything(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)
    )
    data = TensorDataset(*pictures(256, 0))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    rr, optimiser = fabric.setup(Racecar(model, data.tensors[0][:4], weight=0.1), optimiser)
    for epoch in range(epochs):
        for x, y in fabric.setup_dataloaders(DataLoader(data, 32)):
            output, loss = rr(x)
            optimiser.zero_grad()
            fabric.backward(F.cross_entropy(output, y) + loss)
            optimiser.step()
        print(f"epoch {epoch}: racecar loss {loss:.4f}")
    x, y = pictures(256, 1)
    with torch.no_grad():
        print(f"accuracy {(model(x).argmax(1) == y).float().mean():.3f}")


if __name__ == "__main__":
    main()

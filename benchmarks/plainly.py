"""One training of digits or peaks, written plainly in PyTorch after the paper's equations.

    python benchmarks/plainly.py digits|linear|norm|two Std|Ort|RR EPOCHS

What the laboratory is held against. It draws what the laboratory draws (pictures, first weights, directions of Ort),
so that both must come to the same losses; these it prints as JSON, with the singular values of the first layer.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from racecar_lab.datasets import digits, peaks
from racecar_lab.training import rng

SEED, LR, BETA = 0, 1e-4, 0.1
STRENGTH = {"digits": 1e-5, "linear": 1e-6, "norm": 1e-6, "two": 1e-6}


def pictures(name: str) -> tuple[Tensor, Tensor]:
    """Pictures (N, 784) with values 0–255 and their labels."""
    if name != "digits":
        x, y = peaks.load(SEED)
        return x[:100].flatten(1), y[:100]
    images, labels = digits.load()
    order = torch.randperm(len(labels), generator=rng.generator("digits", SEED))
    pair = torch.stack((order[0], next(i for i in order[1:] if labels[i] != labels[order[0]])))
    return images[pair].float().flatten(1), labels[pair]


class Net(nn.Module):
    """One or two linear layers; batch norm and ReLU after each, or none."""

    def __init__(self, widths: list[int], norm: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in widths[1:] if norm)
        for layer in self.layers:
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> list[Tensor]:
        """d_1 … d_(n+1)."""
        d = [x]
        for i, layer in enumerate(self.layers):
            z = layer(d[-1])
            d.append(F.relu(self.norms[i](z)) if self.norms else z)
        return d


def racecar(net: Net, d: list[Tensor]) -> Tensor:
    """Σ ‖d_m − d'_m‖², d' on one way from the output back to the input."""
    total, back = torch.zeros(()), d[-1]
    for m in reversed(range(len(net.layers))):
        back = (back - net.layers[m].bias) @ net.layers[m].weight
        if m and net.norms:  # what made d_m, with the statistics of the reverse pass
            norm = net.norms[m - 1]
            back = F.relu(F.batch_norm(back, None, None, norm.weight, norm.bias, training=True))
        total = total + (d[m] - back).square().sum()
    return total


def srip(net: Net, noise: Tensor) -> Tensor:
    """Σ σ²(W Wᵀ − I), σ after one step from a random direction."""
    total, used = torch.zeros(()), 0
    for layer in net.layers:
        gram = layer.weight @ layer.weight.T - torch.eye(len(layer.weight))
        v = noise[used : used + len(gram)]
        used += len(gram)
        total = total + (gram @ (v / v.norm())).norm().square()
    return total


def train(name: str, variant: str, epochs: int) -> dict[str, Any]:
    """The last losses, and the singular values of the first layer."""
    x, y = pictures(name)
    widths = {"digits": [784, 10], "two": [784, 128, 2]}.get(name, [784, 2])
    torch.manual_seed(rng.seed_of("network", "digits" if name == "digits" else "peaks", SEED))
    net = Net(widths, norm=name in ("norm", "two"))
    optimiser = torch.optim.Adam(net.parameters(), LR)
    losses = []
    for epoch in range(epochs):  # all pictures are one batch
        d = net(x)
        task, regulariser = F.cross_entropy(d[-1], y), torch.zeros(())
        loss = task
        if variant == "RR":
            regulariser = racecar(net, d)
            loss = task + STRENGTH[name] / 2 * regulariser
        elif variant == "Ort":
            noise = rng.noise(sum(widths[1:]), 1, SEED, "A", epoch)[0]
            regulariser = srip(net, noise)
            loss = task + BETA * regulariser
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append((task.item(), regulariser.item()))
    values = torch.linalg.svd(net.layers[0].weight.detach(), full_matrices=False).S
    last = torch.tensor(losses, dtype=torch.float64)[-max(1, -(-epochs // 100)) :].mean(0)  # as a curve's last point
    return {"train_loss": float(last[0]), "regulariser": float(last[1]), "values": values[:10].tolist()}


if __name__ == "__main__":
    print(json.dumps(train(sys.argv[1], sys.argv[2], int(sys.argv[3]))))

"""A user's small nets, trained plainly and with ``Racecar(model, x)`` as it comes: does any die, is any worse?

    python -m benchmarks.small_nets --out results/bench && python -m benchmarks.records

scikit-learn's digits (1797 pictures of 8 × 8 pixels, 600 of them for testing), Adam, no schedule. Both trainings have
the same first weights and the same batches, so differences of accuracy are paired. Writes one record, for the table of
docs/loss.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise, product
from pathlib import Path
from statistics import mean

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.records import as_module
from racecar import Racecar
from racecar.bench.record import circumstances, write_json

LRS = (1e-3, 3e-3)
BATCH, TESTS = 64, 600


def convolutions(depth: int, norm: bool = False) -> nn.Module:
    """The picture is halved after every third of the convolutions."""
    parts: list[nn.Module] = []
    width = 1
    for i in range(depth):
        parts += [nn.Conv2d(width, 16, 3, padding=1), *([nn.BatchNorm2d(16)] if norm else []), nn.ReLU()]
        parts += [nn.MaxPool2d(2)] if (i + 1) % (depth // 3) == 0 else []
        width = 16
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(16, 10))


def dense(depth: int) -> nn.Module:
    widths = [64, *[128] * depth]
    hidden = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(128, 10))


class Transformer(nn.Module):
    """Sixteen patches of 2 × 2 pixels, two layers of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 32, 2, stride=2)
        self.places = nn.Parameter(0.02 * torch.randn(1, 16, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.layers(tokens)).mean(1))


class Residual(nn.Module):
    """Three residual blocks without norms."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.blocks = nn.ModuleList(nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(2)) for _ in range(3))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.stem(x))
        for first, second in self.blocks:
            h = F.max_pool2d(F.relu(h + second(F.relu(first(h)))), 2)
        return self.head(h.flatten(1))


NETS: dict[str, Callable[[], nn.Module]] = {
    "3 convolutions": lambda: convolutions(3),
    "6 convolutions": lambda: convolutions(6),
    "3 convolutions, batch norm": lambda: convolutions(3, norm=True),
    "6 convolutions, batch norm": lambda: convolutions(6, norm=True),
    "MLP, 2 hidden layers": lambda: dense(2),
    "MLP, 5 hidden layers": lambda: dense(5),
    "residual, no norm": Residual,
    "transformer": Transformer,
}


def accuracy(name: str, lr: float, seed: int, epochs: int, with_racecar: bool) -> float:
    """Train one net and return its test accuracy."""
    torch.set_num_threads(1)
    digits = load_digits()
    x, y = torch.tensor(digits.images).float().unsqueeze(1) / 16, torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[TESTS:], order[:TESTS]
    torch.manual_seed(seed)
    model = NETS[name]()
    rr = Racecar(model, x[train[:8]]) if with_racecar else None
    optimiser = torch.optim.Adam(model.parameters(), lr)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for chosen in train[torch.randperm(len(train), generator=generator)].split(BATCH):
            output, loss = (model(x[chosen]), 0.0) if rr is None else rr(x[chosen])
            optimiser.zero_grad()
            (F.cross_entropy(output, y[chosen]) + loss).backward()
            optimiser.step()
    with torch.no_grad():
        return float((model.eval()(x[test]).argmax(1) == y[test]).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--nets", nargs="+", default=list(NETS), choices=list(NETS), metavar="NET")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="folder for a record")
    options = parser.parse_args()
    began, rows = time.perf_counter(), []
    with ProcessPoolExecutor(options.workers) as pool:
        for net, lr in product(options.nets, LRS):
            seeds = range(options.seeds)
            plain, ours = (
                list(pool.map(accuracy, *zip(*((net, lr, seed, options.epochs, how) for seed in seeds), strict=True)))
                for how in (False, True)
            )
            rows.append({"net": net, "lr": lr, "plain": plain, "racecar": ours})
            print(f"{net}, {lr:g}: {100 * mean(plain):.1f} % plain, {100 * mean(ours):.1f} % with racecar", flush=True)
    record = {"seeds": options.seeds, "epochs": options.epochs, "nets": rows, "seconds": time.perf_counter() - began}
    write_json(options.out / "small-nets.json", {**record, **circumstances(as_module("benchmarks.small_nets"), "cpu")})


if __name__ == "__main__":
    main()

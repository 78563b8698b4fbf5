"""Can λ follow the ratio of two gradients? Nets of the safety map, with λ fixed, and with λ that keeps a ratio.

    python -m benchmarks.balance --data DIR --out results/bench && python -m benchmarks.records

The ratio is λ · |gradient of the reverse loss| / |gradient of the task's loss|, over the weights of the convolutions.
To choose λ, it has to tell a good λ from a bad one. Writes one record of all nets, prints the table of docs/loss.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import records
from racecar import Racecar
from racecar.bench.record import as_module, circumstances, write_json
from racecar.lab.experiment import Stage, Trained
from racecar.lab.experiments import experiment
from racecar.lab.experiments.safety.config import SafetyConfig
from racecar.lab.training import rng
from racecar.support.progress import bar

LAMS = (0.001, 0.01, 0.1, 0.3, 1.0)
TARGETS = (0.03, 0.1, 0.3, 1.0)
CONTEXTS = (("none", "torch", 3), ("none", "orthogonal", 3), ("none", "he", 6), ("batch", "torch", 3))
"""Norm, first weights and convolutions; the safety map has λ that help, do nothing and harm among them."""
EVERY = 16
"""Steps between two measurements."""
SLICE = 1 / 4
"""Of the batch, that they are made on."""
KEPT = 0.7
"""Of the logarithm of an automatic λ, at each of them."""
BOUNDS = (1e-5, 10.0)
LR = 3e-3
BATCH = 64
SAFETY = experiment("safety")


@dataclass(frozen=True)
class Net:
    """A trained net."""

    norm: str
    start: str
    depth: int
    seed: int
    lam: float | None
    """Fixed; None: automatic."""
    target: float | None
    """The ratio that an automatic λ keeps."""
    probe: float
    """Accuracy on digits 5–9 by a ridge regression on features, mean of 10 and 50 labels per class."""
    source_accuracy: float
    dead: bool
    ratios: list[float]
    """As it was measured during training."""
    lams: list[float]
    """λ at the same times."""


def train(config: SafetyConfig, seed: int, folder: Path, lam: float | None, target: float | None) -> Net:
    """One net with the default loss; with neither λ nor target plainly."""
    task = SAFETY.data(config, seed, folder)["A"]
    torch.manual_seed(rng.seed_of("network", SAFETY.name, seed))
    model = SAFETY.network(config)
    rr = Racecar(model, task.train.x[:BATCH], weight={"*": 1.0, "classifier*": 0.0})
    optimiser = torch.optim.Adam(model.parameters(), LR)
    orders = [rng.order(len(task.train), BATCH, seed, "A", epoch) for epoch in range(config.epochs)]
    ratios, lams, level = [], [], lam or 0.0
    for step, chosen in enumerate(itertools.chain.from_iterable(orders)):
        x, y = task.train.x[chosen], task.train.y[chosen]
        if step % EVERY == 0:
            ratio = _ratio(rr, x[: round(SLICE * BATCH)], y[: round(SLICE * BATCH)])
            if target is not None:
                wanted = min(max(target / max(ratio, 1e-12), BOUNDS[0]), BOUNDS[1])
                level = wanted if not step else level**KEPT * wanted ** (1 - KEPT)
            ratios.append(level * ratio)
            lams.append(level)
        optimiser.zero_grad()
        output, loss = rr(x) if level else (model(x), torch.zeros(()))
        (F.cross_entropy(output, y) + level * loss).backward()
        optimiser.step()
    done = Trained(Stage("A"), model.eval(), task, seed, "lRR", torch.device("cpu"), folder)
    found = SAFETY.measure(config, done).metrics
    probe = mean(value for name, value in found.items() if name.startswith("probe"))
    ratios, lams = ([float(f"{one:.4g}") for one in some] for some in (ratios, lams))
    return Net(
        config.norm, config.start, config.depth, seed, lam, target, probe, found["source_accuracy"],
        bool(found["dead"]), ratios, lams,
    )  # fmt: skip


def _ratio(rr: Racecar, x: Tensor, y: Tensor) -> float:
    """Of the gradients at λ = 1; the model's buffers stay as they are."""
    kept = {name: buffer.clone() for name, buffer in rr.model.named_buffers()}
    weights = [module.weight for module in rr.model.modules() if isinstance(module, nn.Conv2d)]
    output, loss = rr(x)
    sizes = [
        math.sqrt(sum(float(part.square().sum()) for part in torch.autograd.grad(one, weights, retain_graph=True)))
        for one in (loss, F.cross_entropy(output, y))
    ]
    for name, buffer in rr.model.named_buffers():
        buffer.copy_(kept[name])
    return sizes[0] / max(sizes[1], 1e-12)


def table(nets: Sequence[Net]) -> str:
    """Markdown: for each context the fixed λ and the automatic ones, with gain, λ and ratio in the second half."""
    lines = [["net", "λ", "gain of the probe", "λ in the second half", "ratio in the second half"]]
    lines.append(["---", "---", *["---:"] * 3])
    for context in dict.fromkeys((net.norm, net.start, net.depth) for net in nets):
        own = [net for net in nets if (net.norm, net.start, net.depth) == context]
        plain = {net.seed: net.probe for net in own if net.lam == 0}
        for kind in dict.fromkeys((net.lam, net.target) for net in own if net.lam != 0):
            some = [net for net in own if (net.lam, net.target) == kind]
            gain = mean(100 * (net.probe - plain[net.seed]) for net in some)
            said = f"{kind[0]:g}" if kind[1] is None else f"automatic, ratio {kind[1]:g}"
            halves = [_late(net.lams) for net in some], [_late(net.ratios) for net in some]
            dead = sum(net.dead for net in some)
            name = f"{context[2]} convolutions, norm {context[0]}, start {context[1]}"
            told = f"{gain:+.1f}".replace("-", "−") + (f" ({dead} of {len(some)} dead)" if dead else "")
            lines.append([name, said, told, *(f"{median(values):.2g}" for values in halves)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _late(values: Sequence[float]) -> float:
    return median(values[len(values) // 2 :])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.balance", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with MNIST")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    wanted = {"mode": "layerwise", "scale": "relative", "gradient": "reverse", "layers": "body"}
    designed = SAFETY.configs(SAFETY.Config(), args.data)
    usual = next(one for one in designed if all(getattr(one, name) == value for name, value in wanted.items()))
    kinds: list[dict[str, Any]] = [{"lam": lam, "target": None} for lam in (0.0, *LAMS)]
    kinds += [{"lam": None, "target": target} for target in TARGETS]
    jobs = list(itertools.product(CONTEXTS, range(args.seeds), kinds))
    nets = []
    with bar("training", len(jobs)) as advance:
        for (norm, start, depth), seed, kind in jobs:
            config = replace(usual, norm=norm, start=start, depth=depth, lr=LR)
            nets.append(train(config, seed, args.data, **kind))
            advance(1, f"{norm} {start} {depth}")
    record = {**circumstances(as_module("benchmarks.balance"), "cpu"), "nets": [asdict(one) for one in nets]}
    write_json(args.out / "balance.json", record)
    print(table(nets))
    return 0


def read(folder: Path) -> list[Net]:
    """The nets of the published record."""
    return [Net(**one) for one in records.read(folder, "balance")["balance"]["nets"]]


if __name__ == "__main__":
    sys.exit(main())

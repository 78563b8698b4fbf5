"""Can λ follow the ratio of two gradients? Nets of the safety map, with λ fixed, and with λ that keeps a ratio.

    python -m benchmarks.balance --data DIR --out results/bench && python -m benchmarks.records

The ratio is λ · |gradient of the reverse loss| / |gradient of the task's loss|, over the weights of the convolutions.
To choose λ, it has to tell a good λ from a bad one. Writes one record of all nets, for the table of docs/loss.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.records import as_module
from racecar import Racecar
from racecar.bench.record import circumstances, write_json
from racecar.support.progress import bar
from racecar_lab.experiment import Stage, Trained
from racecar_lab.experiments import experiment
from racecar_lab.experiments.safety.design import SafetyConfig
from racecar_lab.training import rng

LAMS = (0.0, 0.001, 0.01, 0.1, 0.3, 1.0)
"""λ if it is fixed; 0 is plain training."""
TARGETS = (0.03, 0.1, 0.3, 1.0)
"""The ratio that an automatic λ keeps."""
CONTEXTS = (("none", "torch", 3), ("none", "orthogonal", 3), ("none", "he", 6), ("batch", "torch", 3))
"""Norm, first weights and convolutions; the safety map has λ that help, do nothing and harm among them."""
LR, BATCH = 3e-3, 64
EVERY, SLICE = 16, 16
"""Steps between two measurements of the ratio, and samples that each of them sees."""
KEPT = 0.7
"""Share of the logarithm of an automatic λ that stays at each measurement."""
BOUNDS = (1e-5, 10.0)
"""Least and largest automatic λ."""
SAFETY = experiment("safety")


def train(config: SafetyConfig, seed: int, folder: Path, lam: float | None, target: float | None) -> dict[str, Any]:
    """Train one net with the default loss, and return its part of the record: accuracies, and the ratio and λ at every
    measurement during training. λ is fixed, or automatic with a target."""
    task = SAFETY.data(config, seed, folder)["A"]
    torch.manual_seed(rng.seed_of("network", SAFETY.name, seed))
    model = SAFETY.network(config)
    rr = Racecar(model, task.train.x[:BATCH], weight={"*": 1.0, "classifier*": 0.0})
    optimiser = torch.optim.Adam(model.parameters(), LR)
    orders = [rng.order(len(task.train), BATCH, seed, "A", epoch) for epoch in range(config.epochs)]
    ratios, lams, now = [], [], lam or 0.0
    for step, chosen in enumerate(itertools.chain.from_iterable(orders)):
        x, y = task.train.x[chosen], task.train.y[chosen]
        if step % EVERY == 0:
            ratio = gradient_ratio(rr, x[:SLICE], y[:SLICE])
            if target is not None:
                wanted = min(max(target / max(ratio, 1e-12), BOUNDS[0]), BOUNDS[1])
                now = now**KEPT * wanted ** (1 - KEPT) if step else wanted
            ratios.append(float(f"{now * ratio:.4g}"))
            lams.append(float(f"{now:.4g}"))
        optimiser.zero_grad()
        output, loss = rr(x) if now else (model(x), torch.zeros(()))
        (F.cross_entropy(output, y) + now * loss).backward()
        optimiser.step()
    trained = Trained(Stage("A"), model.eval(), task, seed, "lRR", torch.device("cpu"), folder)
    metrics = SAFETY.measure(config, trained).metrics
    return {
        "norm": config.norm, "start": config.start, "depth": config.depth, "seed": seed, "lam": lam, "target": target,
        "probe": mean(value for name, value in metrics.items() if name.startswith("probe")),
        "source_accuracy": metrics["source_accuracy"], "dead": bool(metrics["dead"]), "ratios": ratios, "lams": lams,
    }  # fmt: skip


def gradient_ratio(rr: Racecar, x: Tensor, y: Tensor) -> float:
    """The ratio of the gradients' norms at λ = 1; the model's buffers stay as they are."""
    buffers = {name: buffer.clone() for name, buffer in rr.model.named_buffers()}
    weights = [module.weight for module in rr.model.modules() if isinstance(module, nn.Conv2d)]
    output, loss = rr(x)
    reverse, task = (
        math.sqrt(sum(float(part.square().sum()) for part in torch.autograd.grad(scalar, weights, retain_graph=True)))
        for scalar in (loss, F.cross_entropy(output, y))
    )
    for name, buffer in rr.model.named_buffers():
        buffer.copy_(buffers[name])
    return reverse / max(task, 1e-12)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with MNIST")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    wanted = {"mode": "layerwise", "scale": "relative", "gradient": "reverse", "layers": "body"}
    designed = SAFETY.configs(SAFETY.Config(), args.data)
    usual = next(config for config in designed if all(getattr(config, name) == value for name, value in wanted.items()))
    kinds = [*((lam, None) for lam in LAMS), *((None, target) for target in TARGETS)]
    jobs, nets = list(itertools.product(CONTEXTS, range(args.seeds), kinds)), []
    with bar("training", len(jobs)) as advance:
        for (norm, start, depth), seed, (lam, target) in jobs:
            config = replace(usual, norm=norm, start=start, depth=depth, lr=LR)
            nets.append(train(config, seed, args.data, lam, target))
            advance(1, f"{norm} {start} {depth}")
    write_json(args.out / "balance.json", {**circumstances(as_module("benchmarks.balance"), "cpu"), "nets": nets})


if __name__ == "__main__":
    main()

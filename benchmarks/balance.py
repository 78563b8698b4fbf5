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
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import records
from benchmarks.sentences import paragraph, sure
from racecar import Racecar
from racecar.bench.record import circumstances, write_json
from racecar.reverse.settings import Settings
from racecar.support.progress import bar
from racecar_lab.experiment import Stage, Trained
from racecar_lab.experiments import experiment
from racecar_lab.experiments.safety.config import SafetyConfig
from racecar_lab.training import rng

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
FOLLOWED, ONE = 1.0, 0.1
"""The target, and the fixed λ, that are told of."""

Context = tuple[str, str, int]
"""Norm, first weights and convolutions."""
Kind = tuple[float | None, float | None]
"""λ if it is fixed, and the ratio that it keeps if not."""


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


class Outcome(NamedTuple):
    """Of the nets of a context with one kind of λ."""

    gain: float
    """Of the probe over plain training, in points."""
    lam: float
    """In the second half of the training."""
    ratio: float
    dead: int
    nets: int


def outcomes(nets: Sequence[Net]) -> dict[Context, dict[Kind, Outcome]]:
    """By context and kind of λ."""
    found: dict[Context, dict[Kind, Outcome]] = {}
    for context in dict.fromkeys((net.norm, net.start, net.depth) for net in nets):
        own = [net for net in nets if (net.norm, net.start, net.depth) == context]
        plain = {net.seed: net.probe for net in own if net.lam == 0}
        for kind in dict.fromkeys((net.lam, net.target) for net in own if net.lam != 0):
            some = [net for net in own if (net.lam, net.target) == kind]
            gain = mean(100 * (net.probe - plain[net.seed]) for net in some)
            lam, ratio = median(_late(net.lams) for net in some), median(_late(net.ratios) for net in some)
            found.setdefault(context, {})[kind] = Outcome(gain, lam, ratio, sum(net.dead for net in some), len(some))
    return found


def table(nets: Sequence[Net]) -> str:
    """Markdown: for each context the fixed λ and the automatic ones, with gain, λ and ratio in the second half."""
    lines = [["net", "λ", "gain of the probe", "λ in the second half", "ratio in the second half"]]
    lines.append(["---", "---", *["---:"] * 3])
    for (norm, start, depth), kinds in outcomes(nets).items():
        for (lam, target), one in kinds.items():
            said = f"{lam:g}" if target is None else f"automatic, ratio {target:g}"
            told = f"{one.gain:+.1f}".replace("-", "−") + (f" ({one.dead} of {one.nets} dead)" if one.dead else "")
            name = f"{depth} convolutions, norm {norm}, start {start}"
            lines.append([name, said, told, f"{one.lam:.2g}", f"{one.ratio:.2g}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def remarks(nets: Sequence[Net]) -> str:
    """What these nets show, as Markdown."""
    found = outcomes(nets)
    fixed = {context: {lam: one for (lam, _), one in kinds.items() if lam} for context, kinds in found.items()}
    least, most = min(LAMS), max(LAMS)
    moved = [math.log10(some[most].ratio / some[least].ratio) for (norm, *_), some in fixed.items() if norm == "none"]
    gaining = [context for context, some in fixed.items() if max(one.gain for one in some.values()) > 0]
    losing = [context for context, some in fixed.items() if context not in gaining]
    sure(bool(gaining and losing), "some nets gain, and others lose with every λ")
    best = {context: max(fixed[context], key=lambda lam: fixed[context][lam].gain) for context in gaining}
    ended = {context: kinds[None, FOLLOWED].lam for context, kinds in found.items()}
    for context, lam in best.items():
        sure(all(abs(math.log10(one / lam)) < 1.01 for one in (ended[context], ONE)), "within a decade of the best λ")
    default = Settings().weight
    assert isinstance(default, float)
    times = sorted(ended[context] / default for context in losing)
    sure(min(times) > 10, "in nets that lose λ comes to lie far above the default")
    return "\n".join(map(paragraph, (
        "- The ratio hardly depends on λ. Where training comes to rest the two gradients cancel, and it is 1 "
        "whatever λ is; along the way a larger λ makes the reverse errors smaller, and with them their gradient. "
        f"Without norm, {math.log10(most / least):.0f} decades of λ move it by {min(moved):.1f} to {max(moved):.1f}, "
        "so a small change of the target moves λ by a decade.",
        f"- In the nets that gain, a target of {FOLLOWED:g} leads to a λ within a decade of the best, and so does "
        f"λ = {ONE:g} for all of them.",
        f"- In the nets that lose with every λ, the same target leads to a λ as large, {times[0]:.0f} to "
        f"{times[-1]:.0f} times the default; the ratio looks the same there. A default must not harm where plain "
        "training works.",
    )))  # fmt: skip


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
    record = {**circumstances(records.as_module("benchmarks.balance"), "cpu"), "nets": [asdict(one) for one in nets]}
    write_json(args.out / "balance.json", record)
    print(table(nets))
    return 0


def read(folder: Path) -> list[Net]:
    """The nets of the published record."""
    return [Net(**one) for one in records.read(folder, "balance")["balance"]["nets"]]


if __name__ == "__main__":
    sys.exit(main())

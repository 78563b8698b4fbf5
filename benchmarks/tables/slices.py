"""Tables of docs/bench.md about slices: which of them has the effect of the whole reverse pass, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.tables.common import claims, gain, markdown
from benchmarks.tables.cost import NETS, Steps, read
from racecar_lab.experiments.slices import OPTIMISERS, SLICES
from racecar_lab.report.findings import Finding
from racecar_lab.report.verdicts import SIGNS

TRAINED = {
    "slices": "six layers on 12 bits",
    "slices-mnist": "three convolutions without norm on MNIST",
    "slices-cifar": "thirteen convolutions with batch norm on CIFAR-10",
}
METRICS = {"reverse_loss": "reverse loss, %", "test_accuracy": "accuracy, points"}
NAMES = {"adam": "Adam", "sgd": "SGD"}
EVERY = {1: "", 2: ", every 2nd", 4: ", every 4th"}


def slices(results: Path) -> str:
    """Each slice minus the exact reverse pass, and whether it lies within the margin."""
    rows = []
    for folder, net in TRAINED.items():
        by_slice = {
            (finding.claim.metric, *(finding.claim.where[name] for name in ("optimiser", "fraction", "every"))): finding
            for finding in claims(results / folder)
        }
        seeds = max(finding.pairs for finding in by_slice.values())
        label = f"[{net}](../results/{folder}/report.md), {seeds} seeds"
        for optimiser in OPTIMISERS:
            for metric, title in METRICS.items():
                cells = [_cell(by_slice[metric, optimiser, *slice_]) for slice_ in SLICES[1:]]
                rows.append([label, NAMES[optimiser], title, *cells])
                label = ""
    return markdown(["net", "", "", *(f"1/{round(1 / share)}{EVERY[every]}" for share, every in SLICES[1:])], rows)


def _cell(finding: Finding) -> str:
    assert finding.sides is not None
    cell = [] if finding.interval is None else [gain(finding).partition(" (")[0], SIGNS[finding.verdict]]
    if finding.sides[0].broken:
        cell.append(f"**{len(finding.sides[0].broken)} of {len(finding.sides[0].all_runs)} lost**")
    return " ".join(cell)


def which(results: Path) -> str:
    """The slice that we advise by optimiser, and what it costs."""
    before, now = (read(results, pattern) for pattern in ("h200-*", "default-h200-*"))
    small = {"resnet110": now.pop("resnet110")}
    *names, last = (NETS[net] for net in now)
    eighth = f"{percent(now.values(), '1/8')} in {', '.join(names)} and {last}"
    eighth += f", {percent(small.values(), '1/8')} in ResNet110"
    rows = [
        ["Adam, a net with norms", "**1/16, every 4th step**", percent(before.values(), "1/16 every 4")],
        ["SGD with momentum, a net with norms", "**1/8, every 4th step**", percent(before.values(), "1/8 every 4")],
        ["no norms", "**1/8, every step**", eighth],
    ]
    return markdown(["", "fraction, every", "what it costs on the H200"], rows)


def percent(nets: Iterable[Steps], slice_: str) -> str:
    """By how much a slice makes a step longer, as "15 to 18 %" of some nets or "30 %" of one."""
    more = [100 * (steps[f"racecar {slice_}"]["ratio"] - 1) for steps in nets]
    return " to ".join(dict.fromkeys(f"{end:.0f}" for end in (min(more), max(more)))) + " %"

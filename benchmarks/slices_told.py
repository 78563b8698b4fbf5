"""Which slice of the reverse pass has the effect of all of it: the tables of docs/bench.md, from the records of slices.

`python -m benchmarks.told` fills them in.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import mean

from benchmarks.cost_told import worth
from benchmarks.sentences import paragraph, sure
from racecar_lab.experiments import experiment
from racecar_lab.experiments.slices import OPTIMISERS, REVERSE_LOSS, SLICES
from racecar_lab.report import words
from racecar_lab.report.findings import Finding
from racecar_lab.report.section import findings_of
from racecar_lab.report.units import unit
from racecar_lab.report.verdicts import SIGNS, SUPPORTED, UNDECIDED
from racecar_lab.running.results import Store

NETS = {
    "slices": "six layers on 12 bits",
    "slices-mnist": "three convolutions without norm on MNIST",
    "slices-cifar": "thirteen convolutions with batch norm on CIFAR-10",
}
METRICS = {"reverse_loss": "reverse loss, %", "test_accuracy": "accuracy, points"}
NAMES = {"adam": "Adam", "sgd": "SGD"}
PART = SLICES[1:]

Slice = tuple[float, int]
Found = dict[tuple[str, str, Slice], Finding]
"""By optimiser, metric and slice."""


@cache
def read(folder: Path, name: str) -> Found:
    """The findings of one net."""
    some = findings_of(experiment(name), list(Store(folder / name).runs()))
    return {
        (one.claim.where["optimiser"], one.claim.metric, (one.claim.where["fraction"], one.claim.where["every"])): one
        for one in some
    }


def table(folder: Path) -> str:
    """Each slice minus the exact reverse pass, and whether it lies within the margin."""
    head = ["net", "", "", *map(_label, PART)]
    lines = [head, ["---", "---", "---", *["---:"] * len(PART)]]
    for name, net in NETS.items():
        found = read(folder, name)
        seeds = max(one.pairs for one in found.values())
        label = f"[{net}](../results/{name}/report.md), {seeds} seeds"
        for optimiser in OPTIMISERS:
            for metric, title in METRICS.items():
                cells = [_cell(found[optimiser, metric, one]) for one in PART]
                lines.append([label, NAMES[optimiser], title, *cells])
                label = ""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _label(one: Slice) -> str:
    fraction, every = one
    return f"1/{round(1 / fraction)}" + {1: "", 2: ", every 2nd", 4: ", every 4th"}[every]


def _cell(found: Finding) -> str:
    lost = len(found.better.lost) if found.better is not None else 0
    said = [] if found.gain is None or found.interval is None else [_difference(found), SIGNS[found.verdict]]
    if lost and found.better is not None:
        said.append(f"**{lost} of {len(found.better.seeds)} lost**")
    return " ".join(said)


def _lost(found: Found) -> bool:
    return any(one.better is not None and one.better.lost for one in found.values())


def _difference(found: Finding) -> str:
    assert found.gain is not None
    assert found.interval is not None
    factor = unit(found.claim).factor
    low, high = (factor * end for end in found.interval)
    return words.signed(factor * found.gain.mean, (high - low) / 2)


def remarks(folder: Path) -> str:
    """What the table shows, and what it does not."""
    bits, mnist, cifar = (read(folder, name) for name in NETS)
    spreads = [found.gain.sd for key, found in bits.items() if key[:2] == ("adam", "reverse_loss") and found.gain]
    sure(
        all(sd is not None and sd > REVERSE_LOSS for sd in spreads),
        "12 bits, Adam: seeds differ by more than the margin",
    )
    rare = {one for one in PART if one[1] > 1}
    gone = {(optimiser, one) for (optimiser, _, one), found in mnist.items() if found.better and found.better.diverged}
    sure(
        gone == {("sgd", one) for one in rare}, "without norm SGD diverges in some of the steps, and nothing else does"
    )
    sure(not _lost(cifar), "no net is lost with batch norm")
    lower = [found.gain for key, found in cifar.items() if key[:2] == ("sgd", "reverse_loss")]
    sure(all(one is not None and one.mean < 0 for one in lower), "with SGD slices end lower on CIFAR-10")
    accuracies = {found.verdict for key, found in cifar.items() if key[:2] == ("sgd", "test_accuracy")}
    sure(accuracies == {UNDECIDED}, "with SGD the accuracy on CIFAR-10 is undecided")
    runs = [run for run in Store(folder / "slices-cifar").runs() if run.finished and run.config["optimiser"] == "sgd"]
    std, exact = (
        mean(run.metrics["reverse_loss"] for run in runs if run.variant == name and run.config["fraction"] == 1)
        for name in ("Std", "RR")
    )
    return paragraph(
        "On 12 bits with Adam seeds differ by more than the margin. Without norm SGD **diverges** where the reverse "
        "pass runs in some of the steps only; Adam does not. On CIFAR-10 with SGD none diverges, and slices end with "
        f"a reverse loss *lower* than the exact one's (Std's is {std / exact:.1f} times that), while so few seeds "
        "cannot tell their accuracy from the margin."
    )


def advice(folder: Path) -> str:
    """Which slice to take, and what it costs."""
    cifar, costs = read(folder, "slices-cifar"), worth(folder / "bench")
    sure(not _lost(cifar), "no net is lost with batch norm")
    for metric in METRICS:
        sure(cifar["adam", metric, (1 / 16, 4)].verdict == SUPPORTED, "Adam, norms: 1/16 in every fourth step is equal")
    rows = [
        ["", "fraction, every", "what it costs on the H200"],
        ["---", "---", "---"],
        ["Adam, a net with norms", "**1/16, every 4th step**", costs["1/16, every 4th"]],
        ["SGD with momentum, a net with norms", "**1/8, every 4th step**", costs["1/8, every 4th"]],
        ["no norms", "**1/8, every step**", costs["1/8"]],
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)

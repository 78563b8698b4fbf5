"""Do small nets keep learning with ``presets.keep_learning`` as it comes, on a stream on which nothing was tuned?

    python -m benchmarks.keep_learning_digits [--out results/keep-learning-digits]     # skips finished trainings

The stream is made of 320 of scikit-learn's digits, which get new random labels every 30 epochs: 16 tasks. Two nets, an
MLP with three hidden layers and a net of three convolutions, are trained in batches of 16 by Adam with learning rate
1e-3 from He's initialisation. The metric is the accuracy while learning: that on every batch before the step on it. It
is reported for the first task and, as "late" accuracy, for the second half of the tasks. Pictures, labels, order and
initial weights depend on the seed alone, not on the method, so that differences between methods are paired.

The following was written before the runs. Settings are chosen on seeds 100 to 102:
- λ of mode "linear" is chosen on the MLP: the λ with the best late accuracy among those that lose at most 2 points to
  plain training on the first task. The preset has this λ. None was tried on the convolutions before they were judged.
- The strength of soft orthogonality is chosen for each net: of five the one with the best late accuracy.
On seeds 0 to 4 four claims are judged, two for each net, by Student's intervals of level 1 − 0.05/4 of the paired
differences of late accuracies:
- keep_learning is at least 15 points ahead of plain training: the claim holds if the interval lies above 15.
- keep_learning is not behind soft orthogonality: the claim holds if the interval lies above −2 points.
A claim is refuted if the interval lies below that bound, and undecided otherwise.

The following was written later, before its runs: GradientShare takes the place of the preset's λ, with the share 0.03,
which was chosen on the large streams of ``racecar run streams``. On seeds 0 to 4 the claim is, for each net, that this
loses at most 3 points to the preset in late accuracy, by intervals of level 1 − 0.05/2.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import records
from racecar import GradientShare, Racecar, orthogonality, presets
from racecar.bench.record import circumstances, write_json
from racecar_lab.report.statistics import ALPHA, Estimate, estimate

PICTURES, EPOCHS, TASKS, BATCH, LR = 320, 30, 16, 16, 1e-3
CHOOSING, JUDGED = (100, 101, 102), (0, 1, 2, 3, 4)
"""Seeds on which settings are chosen, and those on which claims are judged."""
LAMBDAS = (0.03, 0.1, 0.3, 1.0)
STRENGTHS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
"""Strengths that are tried with soft orthogonality."""
SHARE = 0.03
FIRST_TASK = 2.0
"""Points of accuracy that λ may cost on the first task."""


def dense() -> nn.Module:
    """An MLP with three hidden layers of 100 units."""
    hidden = [part for a, b in pairwise((64, 100, 100, 100)) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(100, 10))


def convolutions() -> nn.Module:
    """A net of three convolutions with stride 2 and a linear head."""
    pairs = pairwise((1, 16, 32, 64))
    parts = [part for a, b in pairs for part in (nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU())]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(64, 10))


NETS: dict[str, Callable[[], nn.Module]] = {"MLP": dense, "convolutions": convolutions}
SETTINGS: dict[str, Mapping[str, Any]] = {
    "linear": {"mode": "linear", "weight": {"*": 1.0, "@head": 0.0}},
    "keep_learning": presets.keep_learning,
}
"""Method → its settings of ``Racecar``."""


class Comparison(NamedTuple):
    """A claim about two methods, made for every net."""

    better: str
    than: str
    bound: float
    """Points of accuracy by which ``better`` has to be ahead of ``than``."""
    claims: int
    """Number of claims that are judged together, for which the interval is corrected."""


COMPARISONS = (
    Comparison("keep_learning", "plain", 15.0, 2 * len(NETS)),
    Comparison("keep_learning", "orthogonality", -2.0, 2 * len(NETS)),
    Comparison("share", "keep_learning", -3.0, len(NETS)),
)


class Stream(NamedTuple):
    """The stream of tasks of one seed."""

    x: Tensor
    """Pictures, the same in all tasks, (320, 1, 8, 8)."""
    y: Tensor
    """Labels in every task, (tasks, 320)."""
    order: Tensor
    """Order of the pictures in every epoch, (tasks, epochs, 320)."""


def make_stream(seed: int, tasks: int = TASKS, epochs: int = EPOCHS) -> Stream:
    """The stream of tasks of one seed."""
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.tensor(load_digits().images).float().unsqueeze(1) / 16
    x = pictures[torch.randperm(len(pictures), generator=generator)[:PICTURES]]
    y = torch.randint(10, (tasks, PICTURES), generator=generator)
    orders = [torch.randperm(PICTURES, generator=generator) for _ in range(tasks * epochs)]
    return Stream(x, y, torch.stack(orders).reshape(tasks, epochs, PICTURES))


def new_net(net: str, seed: int) -> nn.Module:
    """A net with He's initial weights and biases of 0."""
    torch.manual_seed(seed)
    model = NETS[net]()
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return model


def train(method: str, net: str, seed: int, strength: float, stream: Stream) -> list[float]:
    """Train one net; its accuracy while learning on each task.

    Args:
        method: "plain"; "orthogonality" (Σ‖WᵀW − I‖² over all layers but the head); "linear" (mode "linear" without the
            head); "keep_learning" (the preset as it comes); or "share" (the preset with ``GradientShare``).
        net: one of ``NETS``.
        seed: seed of the initial weights.
        strength: the number by which the method's penalty is multiplied; of method "share", the share.
        stream: the tasks.
    """
    model = new_net(net, seed)
    weights = [parameter for parameter in model.parameters() if parameter.dim() > 1][:-1]
    settings = presets.keep_learning if method == "share" else SETTINGS.get(method)
    rr = Racecar(model, stream.x[:8], **settings) if settings else None
    share = GradientShare(model.parameters(), strength) if method == "share" else None
    optimiser = torch.optim.Adam(model.parameters(), LR, fused=True)
    by_task = []
    for y, order in zip(stream.y, stream.order, strict=True):
        accuracies = []
        for chosen in order.flatten().split(BATCH):
            output, penalty = rr(stream.x[chosen]) if rr else (model(stream.x[chosen]), torch.zeros(()))
            if method == "orthogonality":
                penalty = orthogonality.so(weights)
            task = F.cross_entropy(output, y[chosen])
            optimiser.zero_grad()
            (share(task, penalty) if share else task + strength * penalty).backward()
            optimiser.step()
            accuracies.append(float((output.detach().argmax(1) == y[chosen]).float().mean()))
        by_task.append(mean(accuracies))
    print(f"{net}, {method}, seed {seed}: {100 * by_task[-1]:.0f} % in the last task", flush=True)
    return by_task


def load_or_train(method: str, net: str, seeds: Sequence[int], strengths: Sequence[float], out: Path) -> dict[str, Any]:
    """The record of a method's trainings from the folder ``out``; if it is not there, train and write it."""
    title = f"{net}-{method}-{seeds[0]}"
    settings: dict[str, Any] = {"net": net, "method": method, "seeds": [*seeds], "strengths": [*strengths]}
    if method in SETTINGS:
        settings["settings"] = {**SETTINGS[method], "weight": dict(SETTINGS[method]["weight"])}
    existing = records.read(out, title).get(title, {})
    if existing.items() >= settings.items():
        return existing
    began = time.perf_counter()
    streams = {seed: make_stream(seed) for seed in seeds}
    learned = [[train(method, net, seed, value, streams[seed]) for seed in seeds] for value in strengths]
    rounded = [[[round(value, 5) for value in by_task] for by_task in by_seed] for by_seed in learned]
    program = circumstances(records.as_module("benchmarks.keep_learning_digits"), "cpu")
    del program["seed"]  # a record has several
    record = {**settings, "learned": rounded, **program, "seconds": round(time.perf_counter() - began, 1)}
    write_json(out / f"{title}.json", record)
    return record


def late_accuracy(by_task: Sequence[float]) -> float:
    """Mean accuracy over the second half of the tasks in per cent, from the accuracies of all tasks."""
    return 100 * mean(by_task[len(by_task) // 2 :])


def first_accuracy(by_task: Sequence[float]) -> float:
    """Accuracy on the first task in per cent, from the accuracies of all tasks."""
    return 100 * by_task[0]


def by_strength(record: Mapping[str, Any], metric: Callable[[Sequence[float]], float]) -> dict[float, float]:
    """Strength → mean over the seeds of a metric, computed from the accuracies of all tasks."""
    pairs = zip(record["strengths"], record["learned"], strict=True)
    return {strength: mean(map(metric, by_seed)) for strength, by_seed in pairs}


def best_lambda(plain: Mapping[str, Any], linear: Mapping[str, Any]) -> float:
    """The λ of mode "linear" that the rule of this module chooses, from the MLP's records of both methods."""
    least = by_strength(plain, first_accuracy)[1.0] - FIRST_TASK
    allowed = [strength for strength, value in by_strength(linear, first_accuracy).items() if value >= least]
    if not allowed:
        raise ValueError("every λ costs more than two points of the first task")
    return max(allowed, key=by_strength(linear, late_accuracy).__getitem__)


def best_strength(record: Mapping[str, Any]) -> float:
    """The strength with the best late accuracy."""
    values = by_strength(record, late_accuracy)
    return max(values, key=values.__getitem__)


class JudgedClaim(NamedTuple):
    """The result of a claim for one net."""

    net: str
    comparison: Comparison
    gain: Estimate
    """Points of late accuracy by which the method ``better`` is ahead: paired differences over the seeds."""
    interval: tuple[float, float]
    """Corrected confidence interval of the gain."""
    verdict: str
    """One of "holds", "refuted" and "undecided"."""


def judge(trained: Sequence[Mapping[str, Any]]) -> list[JudgedClaim]:
    """The results of all claims for which the records of the judged seeds contain both methods."""
    known = {(record["net"], record["method"]): record for record in trained}
    claims_of_nets = []
    for net in dict.fromkeys(record["net"] for record in trained):
        for comparison in COMPARISONS:
            better, than, bound, count = comparison
            if not {(net, better), (net, than)} <= known.keys():
                continue
            of_better, of_than = known[net, better], known[net, than]
            if of_better["seeds"] != of_than["seeds"]:
                raise ValueError(f"{net}: the seeds of {better} and {than} differ")
            pairs = zip(of_better["learned"][0], of_than["learned"][0], strict=True)
            gain = estimate([late_accuracy(a) - late_accuracy(b) for a, b in pairs])
            assert gain is not None
            low, high = gain.interval(1 - ALPHA / count) or (gain.mean, gain.mean)
            verdict = "holds" if low > bound else "refuted" if high < bound else "undecided"
            claims_of_nets.append(JudgedClaim(net, comparison, gain, (low, high), verdict))
    return claims_of_nets


def main() -> None:
    """Train what has no record yet, and print the results of the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/keep-learning-digits"))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    grids = {"plain": (1.0,), "linear": LAMBDAS}
    plain, linear = (load_or_train(name, "MLP", CHOOSING, grid, out) for name, grid in grids.items())
    if (chosen := best_lambda(plain, linear)) != presets.keep_learning["weight"]["*"]:
        raise ValueError(f"the preset must have λ = {chosen:g}")
    for net in NETS:
        strength = best_strength(load_or_train("orthogonality", net, CHOOSING, STRENGTHS, out))
        strengths = {"plain": 1.0, "keep_learning": 1.0, "orthogonality": strength, "share": SHARE}
        trained = [load_or_train(method, net, JUDGED, [value], out) for method, value in strengths.items()]
        for claim in judge(trained):
            print(claim.net, *claim.comparison[:2], f"{claim.gain.mean:.1f}", claim.interval, claim.verdict)
    records.pack(out, shown=False)


if __name__ == "__main__":
    main()

"""A stream that nobody tuned on: do small nets keep learning with ``presets.keep_learning`` as it comes?

    python -m benchmarks.keep_learning_digits [--out results/keep-learning-digits]     # skips what is there

scikit-learn's digits, 320 pictures, new random labels every 30 epochs, 16 tasks, batches of 16, Adam with learning rate
1e-3, He's first weights; an MLP of three hidden layers and three convolutions. What counts is the accuracy while
learning: on every batch before the step on it. It is reported for the first task, and as "late" over the second half of
the tasks. A seed has its own pictures, labels, order and first weights, the same for all methods, so that differences
are paired.

Written before the runs. On seeds 100 to 102:
- λ of mode "linear" is chosen on the MLP, and is the preset's: of those that lose at most 2 points to plain training on
  the first task the best one (late). On the convolutions nothing of it was tried before they were judged.
- soft orthogonality's strength is chosen, for each net its best of five (late).
On seeds 0 to 4 four claims are judged, two for each net, by Student's intervals of level 1 − 0.05/4 of the paired
differences (late):
- keep_learning is at least 15 points over plain training: it holds if the interval lies above 15.
- keep_learning is not behind soft orthogonality: it holds if the interval lies above −2 points.
A claim is refuted if the interval lies below that bound, and undecided else.

Written later, before the runs of it: GradientShare takes the place of the preset's λ, with the share 0.03, which was
chosen on the large streams of ``racecar run streams``. On seeds 0 to 4 it is claimed for each net that it loses at most
3 points to the preset (late), by intervals of level 1 − 0.05/2.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from benchmarks import records
from racecar import GradientShare, Racecar, orthogonality, presets
from racecar.bench.record import circumstances, write_json
from racecar_lab.report.statistics import ALPHA, Estimate, estimate

PICTURES, EPOCHS, TASKS, BATCH, LR = 320, 30, 16, 16, 1e-3
CHOOSING, JUDGED = (100, 101, 102), (0, 1, 2, 3, 4)
LAMBDAS = (0.03, 0.1, 0.3, 1.0)
STRENGTHS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
SHARE = 0.03
FIRST_TASK = 2.0
"""Points that λ may cost there."""


def dense() -> nn.Module:
    hidden = [part for a, b in pairwise((64, 100, 100, 100)) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(100, 10))


def convolutions() -> nn.Module:
    pairs = pairwise((1, 16, 32, 64))
    parts = [part for a, b in pairs for part in (nn.Conv2d(a, b, 3, stride=2, padding=1), nn.ReLU())]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(64, 10))


NETS: dict[str, Callable[[], nn.Module]] = {"MLP": dense, "convolutions": convolutions}
SETTINGS: dict[str, Mapping[str, Any]] = {
    "linear": {"mode": "linear", "weight": {"*": 1.0, "@head": 0.0}},
    "keep_learning": presets.keep_learning,
}
"""Of ``Racecar``, by method."""


class Comparison(NamedTuple):
    """A claim that is made for every net."""

    better: str
    than: str
    bound: float
    """Points by which the first has to be ahead."""
    claims: int
    """For how many claims its interval is corrected."""


COMPARISONS = (
    Comparison("keep_learning", "plain", 15.0, 2 * len(NETS)),
    Comparison("keep_learning", "orthogonality", -2.0, 2 * len(NETS)),
    Comparison("share", "keep_learning", -3.0, len(NETS)),
)
Parameters = dict[str, Tensor]
"""By name, of E nets: (E, …)."""


class Data(NamedTuple):
    """Of one seed."""

    x: Tensor
    """(320, 1, 8, 8)"""
    y: Tensor
    """Labels of every task, (tasks, 320)."""
    order: Tensor
    """Of the pictures in every epoch, (tasks, epochs, 320)."""


def data(seed: int, tasks: int = TASKS, epochs: int = EPOCHS) -> Data:
    """The stream of one seed."""
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.tensor(load_digits().images).float().unsqueeze(1) / 16
    x = pictures[torch.randperm(len(pictures), generator=generator)[:PICTURES]]
    y = torch.randint(10, (tasks, PICTURES), generator=generator)
    orders = [torch.randperm(PICTURES, generator=generator) for _ in range(tasks * epochs)]
    return Data(x, y, torch.stack(orders).reshape(tasks, epochs, PICTURES))


def first_weights(net: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = NETS[net]()
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return model


def method(name: str, model: nn.Module, x: Tensor) -> Callable[[Parameters, Tensor], tuple[Tensor, Tensor]]:
    """From one net's parameters and a batch to its logits and what is added to the loss, times the strength.

    Args:
        name: "plain", "orthogonality" (Σ‖WᵀW − I‖² over all layers but the head), "linear" (mode "linear" with λ = 1,
            the head left out) or "keep_learning" (the preset as it comes).
    """
    if name in SETTINGS:
        rr = Racecar(model, x[:8], **SETTINGS[name])
        return lambda p, x: functional_call(rr, {f"model.{key}": one for key, one in p.items()}, (x,))
    weights = [key for key, one in model.named_parameters() if one.dim() > 1][:-1]

    def run(p: Parameters, x: Tensor) -> tuple[Tensor, Tensor]:
        output = functional_call(model, p, (x,))
        return output, orthogonality.so([p[key] for key in weights]) if name == "orthogonality" else output.new_zeros(
            ()
        )

    return run


def train(name: str, net: str, seeds: Sequence[int], strengths: Sequence[float], streams: Sequence[Data]) -> Tensor:
    """Accuracy while learning of every task, (strengths, seeds, tasks): all nets at once, each as if it were alone.

    A loss is added up over the nets, and Adam treats every weight by itself, so that no net knows of another.
    """
    if name == "share":
        alone = [[train_by_share(net, *one, share) for one in zip(seeds, streams, strict=True)] for share in strengths]
        return torch.tensor(alone)
    models = [first_weights(net, seed) for _ in strengths for seed in seeds]
    streams = [*streams] * len(strengths)
    step = vmap(method(name, models[0], streams[0].x))
    named = [dict(model.named_parameters()) for model in models]
    p: Parameters = {key: torch.stack([one[key].detach() for one in named]).requires_grad_() for key in named[0]}
    times = torch.tensor([strength for strength in strengths for _ in seeds])
    optimiser = torch.optim.Adam(list(p.values()), LR, fused=True)
    found = []
    for x, y, last in _batches(streams):
        output, extra = step(p, x)
        task = F.cross_entropy(output.flatten(0, 1), y.flatten(), reduction="sum") / y.shape[1]
        optimiser.zero_grad()
        (task + (times * extra).sum()).backward()
        optimiser.step()
        found.append((output.detach().argmax(2) == y).float().mean(1))
        if last:
            print(f"{net}, {name}: task of {100 * mean(found[-1].tolist()):.0f} % at its end", flush=True)
    per_task = torch.stack(found).reshape(len(streams[0].y), -1, len(models)).mean(1)
    return per_task.T.reshape(len(strengths), len(seeds), -1)


def train_by_share(net: str, seed: int, stream: Data, share: float) -> list[float]:
    """The same of one net whose preset has the factor of ``GradientShare``."""
    model = first_weights(net, seed)
    rr = Racecar(model, stream.x[:8], **presets.keep_learning)
    total = GradientShare(model.parameters(), share)
    optimiser = torch.optim.Adam(model.parameters(), LR, fused=True)
    right, tasks = [], []
    for x, y, last in _batches([stream]):
        output, loss = rr(x[0])
        optimiser.zero_grad()
        total(F.cross_entropy(output, y[0]), loss).backward()
        optimiser.step()
        right.append(float((output.detach().argmax(1) == y[0]).float().mean()))
        if last:
            tasks.append(mean(right))
            right = []
    print(f"{net}, share, seed {seed}: {100 * tasks[-1]:.0f} % in the last task", flush=True)
    return tasks


def _batches(streams: Sequence[Data]) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """x (E, 16, 1, 8, 8) and y (E, 16) of all nets, and whether a task ends."""
    tasks, epochs, _ = streams[0].order.shape
    for task in range(tasks):
        for epoch in range(epochs):
            orders = torch.stack([one.order[task, epoch] for one in streams]).split(BATCH, 1)
            for i, chosen in enumerate(orders, 1):
                pairs = list(zip(streams, chosen, strict=True))
                x, y = torch.stack([one.x[c] for one, c in pairs]), torch.stack([one.y[task, c] for one, c in pairs])
                yield x, y, epoch == epochs - 1 and i == len(orders)


def record(name: str, net: str, seeds: Sequence[int], strengths: Sequence[float], out: Path) -> dict[str, Any]:
    """What was trained, from its record if there is one."""
    title = f"{net}-{name}-{seeds[0]}"
    asked: dict[str, Any] = {"net": net, "method": name, "seeds": [*seeds], "strengths": [*strengths]}
    if name in SETTINGS:
        settings = SETTINGS[name]
        asked["settings"] = {**settings, "weight": dict(settings["weight"])}
    known = records.read(out, title).get(title, {})
    if known.items() >= asked.items():
        return known
    began = time.perf_counter()
    found = train(name, net, seeds, strengths, [data(seed) for seed in seeds])
    one = {**asked, "learned": [[[round(value, 5) for value in a] for a in b] for b in found.tolist()]}
    made = circumstances(records.as_module("benchmarks.keep_learning_digits"), "cpu")
    del made["seed"]  # there are several
    one |= {**made, "seconds": round(time.perf_counter() - began, 1)}
    write_json(out / f"{title}.json", one)
    return one


def late(learned: Sequence[float]) -> float:
    """In points, over the second half of the tasks."""
    return 100 * mean(learned[len(learned) // 2 :])


def first(learned: Sequence[float]) -> float:
    return 100 * learned[0]


def by_strength(one: Mapping[str, Any], measured: Callable[[Sequence[float]], float]) -> dict[float, float]:
    """Mean over the seeds."""
    pairs = zip(one["strengths"], one["learned"], strict=True)
    return {strength: mean(map(measured, seeds)) for strength, seeds in pairs}


def best_lambda(plain: Mapping[str, Any], linear: Mapping[str, Any]) -> float:
    """By the rule that was written before; of the MLP's records."""
    least = by_strength(plain, first)[1.0] - FIRST_TASK
    allowed = [strength for strength, value in by_strength(linear, first).items() if value >= least]
    if not allowed:
        raise ValueError("every λ costs more than two points of the first task")
    return max(allowed, key=by_strength(linear, late).__getitem__)


def best(one: Mapping[str, Any]) -> float:
    """The strength with the best late accuracy."""
    values = by_strength(one, late)
    return max(values, key=values.__getitem__)


class Judged(NamedTuple):
    """One claim of one net."""

    net: str
    comparison: Comparison
    gain: Estimate
    """Points by which the first method is ahead, paired."""
    interval: tuple[float, float]
    verdict: str


def judge(trained: Sequence[Mapping[str, Any]]) -> list[Judged]:
    """The claims, of the records of the judged seeds, as far as there are some."""
    known = {(record["net"], record["method"]): record for record in trained}
    verdicts = []
    for net in dict.fromkeys(record["net"] for record in trained):
        for comparison in COMPARISONS:
            better, than, bound, claims = comparison
            if not {(net, better), (net, than)} <= known.keys():
                continue
            ours, theirs = known[net, better], known[net, than]
            if ours["seeds"] != theirs["seeds"]:
                raise ValueError(f"{net}: the seeds of {better} and {than} differ")
            pairs = zip(ours["learned"][0], theirs["learned"][0], strict=True)
            gain = estimate([late(a) - late(b) for a, b in pairs])
            assert gain is not None
            low, high = gain.interval(1 - ALPHA / claims) or (gain.mean, gain.mean)
            verdict = "holds" if low > bound else "refuted" if high < bound else "undecided"
            verdicts.append(Judged(net, comparison, gain, (low, high), verdict))
    return verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/keep-learning-digits"))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    grids = {"plain": (1.0,), "linear": LAMBDAS}
    plain, linear = (record(name, "MLP", CHOOSING, grid, out) for name, grid in grids.items())
    if (chosen := best_lambda(plain, linear)) != presets.keep_learning["weight"]["*"]:
        raise ValueError(f"the preset must have λ = {chosen:g}")
    for net in NETS:
        found = [record(name, net, JUDGED, [1.0], out) for name in ("plain", "keep_learning")]
        strength = best(record("orthogonality", net, CHOOSING, STRENGTHS, out))
        found += [record("orthogonality", net, JUDGED, [strength], out), record("share", net, JUDGED, [SHARE], out)]
        for one in judge(found):
            print(one.net, *one.comparison[:2], f"{one.gain.mean:.1f}", one.interval, one.verdict)
    records.pack(out, shown=False)


if __name__ == "__main__":
    main()

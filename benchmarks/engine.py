"""Time the engine: plain step, hand-written reverse step and ours, interleaved in one run.

    python -m benchmarks.engine [--rounds 30] [--device cpu] [--out results/bench/engine-cpu.json]

Ratios of medians are what counts: all three share the machine's noise. The second table says what planning costs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.by_hand import mlp_step, vgg_step
from benchmarks.record import circumstances, write_json
from racecar import Racecar
from tests.networks import ResNet, mlp, vgg

Step = Callable[[], tuple[Tensor, Tensor | float]]


def train(step: Step, target: Tensor, model: nn.Module) -> Callable[[], None]:
    """A training step without the optimiser, which all three would share."""

    def run() -> None:
        model.zero_grad(set_to_none=True)
        output, loss = step()
        (F.cross_entropy(output, target) + loss).backward()
        if target.is_cuda:
            torch.cuda.synchronize()

    return run


def interleaved(steps: dict[str, Callable[[], None]], rounds: int, title: str) -> dict[str, list[float]]:
    """Seconds of every step in every round, in an order that turns from round to round."""
    for step in steps.values():
        step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            start = time.perf_counter()
            steps[name]()
            seconds[name].append(time.perf_counter() - start)
        print(f"\r{title}: round {i + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return seconds


def case(
    name: str,
    model: nn.Module,
    x: Tensor,
    by_hand: Callable[[nn.Module, Tensor], tuple[Tensor, Tensor]],
    rounds: int,
) -> dict[str, Any]:
    """Median milliseconds and ratios of one net."""
    target = torch.randint(10, (len(x),), device=x.device)
    rr = Racecar(model, x, mode="full")
    theirs, ours = by_hand(model, x)[1], rr(x)[1]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=0)  # the same loss, or the times mean nothing
    steps = {
        "plain": train(lambda: (model(x), 0.0), target, model),
        "by hand": train(lambda: by_hand(model, x), target, model),
        "racecar": train(lambda: rr(x), target, model),
    }
    seconds = interleaved(steps, rounds, name)
    median = {kind: statistics.median(times) for kind, times in seconds.items()}
    paired = [ours / theirs for ours, theirs in zip(seconds["racecar"], seconds["by hand"], strict=True)]
    return {
        "net": name,
        "batch": len(x),
        "median_ms": {kind: 1000 * value for kind, value in median.items()},
        "by_hand_over_plain": median["by hand"] / median["plain"],
        "racecar_over_plain": median["racecar"] / median["plain"],
        "racecar_over_by_hand": median["racecar"] / median["by hand"],
        "racecar_over_by_hand_paired_median": statistics.median(paired),
        "seconds": seconds,
    }


def planning(rounds: int, device: str) -> dict[str, float]:
    """What making a plan of a 110-layer ResNet costs, in forward passes of the same batch."""
    model, x = ResNet(110).to(device), torch.randn(8, 3, 32, 32, device=device)

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def plan() -> None:
        Racecar(model, x)

    seconds = interleaved({"forward": forward, "plan": plan}, rounds, "plan of ResNet110")
    median = {kind: statistics.median(times) for kind, times in seconds.items()}
    return {
        "forward_ms": 1000 * median["forward"],
        "plan_ms": 1000 * median["plan"],
        "forward_passes": median["plan"] / median["forward"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="timed rounds (default 30)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="write a JSON record here")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    torch.manual_seed(0)
    device = options.device
    start = time.perf_counter()
    images, vectors = torch.randn(64, 3, 32, 32, device=device), torch.randn(256, 1024, device=device)
    cases = [
        case("VGG, 13 convs, 32x32", vgg().to(device), images, vgg_step, options.rounds),
        case("MLP, 6 x 1024", mlp([1024] * 6 + [10]).to(device), vectors, mlp_step, options.rounds),
    ]
    plan = planning(max(5, options.rounds // 3), device)
    print(f"{'net':24}{'plain':>10}{'by hand':>10}{'racecar':>10}{'hand/plain':>12}{'ours/plain':>12}{'ours/hand':>12}")
    for row in cases:
        ms = row["median_ms"]
        print(
            f"{row['net']:24}{ms['plain']:8.1f}ms{ms['by hand']:8.1f}ms{ms['racecar']:8.1f}ms"
            f"{row['by_hand_over_plain']:12.3f}{row['racecar_over_plain']:12.3f}{row['racecar_over_by_hand']:12.3f}"
        )
    print(
        f"plan of ResNet110 (batch 8): {plan['plan_ms']:.0f} ms = {plan['forward_passes']:.2f} forward passes "
        f"of {plan['forward_ms']:.0f} ms"
    )
    if options.out:
        wall = {"wall_s": time.perf_counter() - start}
        write_json(
            options.out, {"cases": cases, "planning": plan, **wall, **circumstances("benchmarks.engine", device)}
        )


if __name__ == "__main__":
    main()

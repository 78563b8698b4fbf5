"""Tables of docs/loss.md: the defaults on fresh seeds, a user's small nets, and λ that follows a ratio."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from benchmarks import records
from benchmarks.tables.common import markdown, typeset
from racecar_lab.experiments.safety.rule import Verdict, judge, nets_of
from racecar_lab.experiments.safety.tables import fresh_table
from racecar_lab.report.groups import collect
from racecar_lab.running.results import Store

DEAD = 0.2
"""Accuracy below which a net that tells ten digits apart is dead."""


@cache
def safety_verdict(results: Path) -> Verdict:
    """The verdict of the rule on the published map of safe settings."""
    return judge(nets_of(Store(results / "safety").runs()))


def fresh_settings(results: Path) -> str:
    """Settings that were run in all contexts on fresh seeds."""
    table = fresh_table(safety_verdict(results))
    return markdown(list(table.columns), [[cell.text for cell in row.values()] for row in table.rows])


def small_nets(results: Path) -> str:
    """A user's nets with ``Racecar(model, x)`` as it comes, beside plain training; each from its record of most
    seeds."""
    nets: dict[tuple[str, float], dict[str, Any]] = {}
    for record in sorted(records.read(results / "bench", "small-nets*").values(), key=lambda record: record["seeds"]):
        nets |= {(net["net"], net["lr"]): net for net in record["nets"]}
    rows = []
    for (name, lr), net in nets.items():
        plain, ours = net["plain"], net["racecar"]
        gains = [100 * (b - a) for a, b in zip(plain, ours, strict=True)]
        means = [f"{100 * mean(values):.1f}" for values in (plain, ours)]
        dead = [str(sum(value < DEAD for value in values)) for values in (plain, ours)]
        apart = typeset(f"{mean(gains):+.1f} ± {stdev(gains):.1f}")
        rows.append([name, f"{lr:g}", str(len(plain)), *means, apart, *dead])
    head = ["net", "learning rate", "seeds", "plain, %", "racecar, %", "difference, paired, points", "dead: plain"]
    return markdown([*head, "racecar"], rows)


def balance(results: Path) -> str:
    """For each kind of net the fixed λ and those that keep a ratio of gradients: gain over plain training with the same
    seed, and λ and the ratio in the second half of the training."""
    nets = records.read(results / "bench", "balance")["balance"]["nets"]
    rows = []
    for (depth, norm, start), context in collect(((n["depth"], n["norm"], n["start"]), n) for n in nets).items():
        plain = {net["seed"]: net["probe"] for net in context if net["lam"] == 0}
        for (lam, target), same in collect(((n["lam"], n["target"]), n) for n in context if n["lam"] != 0).items():
            gain = mean(100 * (net["probe"] - plain[net["seed"]]) for net in same)
            dead = sum(net["dead"] for net in same)
            rows.append([
                f"{depth} convolutions, norm {norm}, start {start}",
                f"{lam:g}" if target is None else f"automatic, ratio {target:g}",
                typeset(f"{gain:+.1f}") + (f" ({dead} of {len(same)} dead)" if dead else ""),
                *(f"{median(_late(net[name]) for net in same):.2g}" for name in ("lams", "ratios")),
            ])  # fmt: skip
    return markdown(["net", "λ", "gain of the probe", "λ in the second half", "ratio in the second half"], rows)


def _late(values: list[float]) -> float:
    return median(values[len(values) // 2 :])

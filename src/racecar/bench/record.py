"""Records of runs: the numbers, and what a reader needs to make them again. Written atomically."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from racecar.bench import floor
from racecar.bench.kinds import PLAIN, Kind
from racecar.bench.timing import quartiles
from racecar.bench.workload import About
from racecar.support import files
from racecar.support.source import commit

BESIDE = ("plan_s", "first_s", "kernels", "kernel_ms", "product_ms", "largest")
"""What may be known of a step beside its times and memory."""


def as_module(name: str) -> str:
    """The command line of a program that runs as a module."""
    return shlex.join(["python", "-m", name, *sys.argv[1:]])


def circumstances(command: str, device: str) -> dict[str, Any]:
    """The command, the versions and the machine of this run. The seed is 0 in every benchmark."""
    cuda = device.startswith("cuda")
    return {
        "command": command,
        "commit": commit(),
        "seed": 0,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if cuda else f"CPU {platform.machine()}",
        "cuda": torch.version.cuda if cuda else None,
        "threads": torch.get_num_threads(),
    }


def model_record(
    workload: About,
    kinds: Sequence[Kind],
    found: Mapping[Kind, Mapping[str, Any]],
    flops: tuple[int, int] | None,
    burst: int,
    seconds: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """One model's part of a record.

    Args:
        workload: the model.
        kinds: the kinds of steps that were asked for.
        found: for each (with ``every`` 1) what is known beside its times.
        flops: per sample, of the plain and of the exact step.
        burst: steps in a burst.
        seconds: per step, by label, of every round.
    """
    steps = []
    plain = seconds.get(PLAIN.label)
    plain_memory = found.get(PLAIN, {}).get("memory")
    for kind in kinds:
        about = found[replace(kind, every=1)]
        if about.get("missing"):
            continue
        row: dict[str, Any] = {"step": kind.label, "way": kind.way, "fraction": kind.fraction, "every": kind.every}
        row |= {"gradient": kind.gradient, "mode": kind.mode} if kind.way == "racecar" else {}
        row |= {"error": about.get("error"), "memory": about.get("memory")}
        row |= {name: about[name] for name in BESIDE if name in about}
        if row["memory"] and plain_memory:
            row["memory_ratio"] = row["memory"] / plain_memory
        samples = max(1, round(kind.fraction * workload.batch)) if kind.fraction else 0
        row["samples"] = samples
        default = (kind.gradient, kind.mode) == (PLAIN.gradient, PLAIN.mode)  # what was counted, and written by hand
        if flops is not None and default and kind.way in ("plain", "racecar", "by hand"):
            row["floor"] = floor.floor(*flops, samples / workload.batch / kind.every)
        if kind.label in seconds:
            row |= {"captured": workload.how.graphs and not kind.eager, **times(seconds[kind.label], plain)}
            hand = seconds.get(Kind("by hand", kind.fraction).label)
            if hand and default and kind.way == "racecar" and kind.every == 1:
                row["over_by_hand"] = median(seconds[kind.label]) / median(hand)
            if plain and "floor" in row:
                row["over_floor"] = row["ratio"] / row["floor"]
        steps.append(row)
    return {
        "model": workload.name,
        "parameters": workload.parameters,
        "inputs": workload.inputs,
        "flops": None if flops is None else {"plain": flops[0], "exact": flops[1]},
        "burst": burst,
        "steps": steps,
    }


def times(seconds: Sequence[float], plain: Sequence[float] | None) -> dict[str, Any]:
    """Median and quartiles; ratio of medians to the plain step, and quartiles of the ratios round by round."""
    low, middle, high = (1000 * value for value in quartiles(seconds))
    row: dict[str, Any] = {"median_ms": middle, "quartiles_ms": [low, high], "seconds": list(seconds)}
    if plain:
        low, _, high = quartiles([one / other for one, other in zip(seconds, plain, strict=True)])
        row |= {"ratio": median(seconds) / median(plain), "ratio_quartiles": [low, high]}
    return row


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    files.write_json(path, record)
    print(f"wrote {path}", file=sys.stderr)


def write_text(path: Path, text: str) -> None:
    files.write_text(path, text)
    print(f"wrote {path}", file=sys.stderr)


def read(path: Path) -> dict[str, Any]:
    """A record that ``racecar bench --out`` wrote."""
    try:
        record = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no JSON file: {error}") from None
    if not isinstance(record, dict) or not {"models", "settings"} <= set(record):
        raise ValueError(f"{path} is no record of racecar bench")
    return record

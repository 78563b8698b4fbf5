"""Records: the numbers of a run as JSON, with what a reader needs to make them again."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from racecar.bench import floor
from racecar.bench.kinds import PLAIN, Kind
from racecar.bench.timing import quartiles
from racecar.bench.workload import Description
from racecar.support import files
from racecar.support.source import commit


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
    model: Description,
    details: Mapping[Kind, Mapping[str, Any]],
    kinds: Sequence[Kind],
    seconds: Mapping[str, Sequence[float]],
    *,
    flops: tuple[int, int] | None,
    burst: int,
    graphs: bool,
) -> dict[str, Any]:
    """One model's part of a record.

    Args:
        model: the model.
        details: of each kind (with ``every`` 1) what is known beside its times; kinds without are left out.
        kinds: in the order of the record.
        seconds: per step, by label, of every round.
        flops: per sample, of the plain step and of the one whose reverse pass sees the whole batch.
        burst: steps in a burst.
        graphs: whether steps were replayed as CUDA graphs.
    """
    plain, plain_memory = seconds.get(PLAIN.label), details.get(PLAIN, {}).get("memory")
    rows = []
    for kind in kinds:
        if kind.once() not in details:
            continue
        samples = max(1, round(kind.fraction * model.batch)) if kind.fraction else 0
        row: dict[str, Any] = {"step": kind.label, "way": kind.way, "fraction": kind.fraction, "every": kind.every}
        row |= {**kind.settings(), "samples": samples, "error": None, "memory": None, **details[kind.once()]}
        if row["memory"] and plain_memory:
            row["memory_ratio"] = row["memory"] / plain_memory
        if flops is not None and kind.has_floor():
            row["floor"] = floor.floor(*flops, samples / model.batch / kind.every)
        if kind.label in seconds:
            row |= {"captured": graphs and kind.capturable, **times(seconds[kind.label], plain)}
            if plain and "floor" in row:
                row["over_floor"] = row["ratio"] / row["floor"]
        rows.append(row)
    return {
        "model": model.name,
        "parameters": model.parameters,
        "inputs": model.inputs,
        "flops": None if flops is None else {"plain": flops[0], "exact": flops[1]},
        "burst": burst,
        "steps": rows,
    }


def times(seconds: Sequence[float], plain: Sequence[float] | None) -> dict[str, Any]:
    """Median and quartiles, and the ratio to the plain step: of medians, with the quartiles of each round's ratio."""
    low, middle, high = (1000 * value for value in quartiles(seconds))
    row: dict[str, Any] = {"median_ms": middle, "quartiles_ms": [low, high], "seconds": list(seconds)}
    if plain:
        low, _, high = quartiles([one / other for one, other in zip(seconds, plain, strict=True)])
        row |= {"ratio": median(seconds) / median(plain), "ratio_quartiles": [low, high]}
    return row


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    files.write_json(path, record)
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

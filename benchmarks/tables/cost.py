"""Tables of docs/bench.md about the time of a step, from the records of `racecar bench` and benchmarks.first_two."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import records
from benchmarks.tables.common import markdown
from racecar.reverse.terms import GRADIENTS

NETS = {"vgg19": "VGG19-BN", "resnet50": "ResNet50", "vit": "ViT-B/16", "resnet110": "ResNet110"}
CPU_NETS = {"vgg7-narrow": "narrow VGG", "mlp": "MLP, 6 × 1024"}
SLICES = {"exact": "1", "1/8": "1/8", "1/16": "1/16"}
EVERY_4TH = {f"{slice_}, every 4th": f"{slice_} every 4" for slice_ in ("1/8", "1/16")}
"""Heading → the end of a step's name in the records."""

Steps = Mapping[str, Mapping[str, Any]]
"""Name of a step → what was measured of it."""


def read(results: Path, pattern: str) -> dict[str, Steps]:
    """Net → its compiled steps, of all records with such a name; what several have is taken from the last one."""
    nets: dict[str, dict[str, Any]] = {name: {} for name in NETS}
    for record in records.read(results / "bench", pattern).values():
        if record["settings"]["compile"] and not record["settings"].get("combine"):
            for model in record["models"]:
                for step in model.get("steps", []):
                    if step.get("ratio") is not None:
                        known = nets[model["model"]].setdefault(step["step"], {})
                        known |= {name: value for name, value in step.items() if value is not None}
    return {name: steps for name, steps in nets.items() if steps}


def of(steps: Steps, step: str, what: str = "ratio") -> str:
    """A number of a step; a dash if it was not measured."""
    value = steps.get(step, {}).get(what)
    return "–" if value is None else f"{value:.2f}"


def cost(results: Path, pattern: str) -> str:
    """Ratios to the plain step, of memory too; and ours over the step by hand, the worst of exact, 1/8 and 1/16.
    Columns without a number are left out."""
    columns = {heading: f"racecar {slice_}" for heading, slice_ in {**SLICES, **EVERY_4TH}.items()}
    columns |= {"SRIP": "srip", "SRIP as published": "srip as published"}
    rows = []
    for name, steps in read(results, pattern).items():
        memory = ", ".join(of(steps, columns[slice_], "memory_ratio") for slice_ in ("1/8", "1/16"))
        by_hand = [step["over_by_hand"] for step in steps.values() if step.get("over_by_hand") is not None]
        worst = f"{max(by_hand):.2f} of {len(by_hand)}" if by_hand else "–"
        rows.append([NETS[name], _plain(steps), *(of(steps, step) for step in columns.values()), memory, worst])
    head = ["", "plain, ms", *columns, "memory at 1/8, 1/16", "÷ by hand, at most"]
    kept = [i for i, column in enumerate(zip(*rows, strict=True)) if set(column) != {"–"}]
    return markdown([head[i] for i in kept], [[row[i] for i in kept] for row in rows])


def gradients(results: Path) -> str:
    """Time and memory of a step over the plain one's, for everything that the gradient can reach."""
    rows = []
    for name, steps in read(results, "gradients-h200-*").items():
        for gradient in GRADIENTS:
            way = "racecar" if gradient == "reverse" else f"racecar {gradient}"
            cells = [
                of(steps, f"{way} {slice_}", what) for what in ("ratio", "memory_ratio") for slice_ in SLICES.values()
            ]
            rows.append([NETS[name], gradient, *cells])
    return markdown(["", "gradient", *SLICES, *(f"memory, {slice_}" for slice_ in SLICES)], rows)


def linear(results: Path) -> str:
    """Time of a step with mode "linear" over the plain one's, on a CPU, beside the default mode."""
    columns = {"exact": "1", "1/8": "1/8", "exact, every 4th": "1 every 4", "1/8, every 4th": "1/8 every 4"}
    rows = []
    for record in records.read(results / "bench", "linear-cpu*").values():
        for model in record["models"]:
            steps = {step["step"]: step for step in model["steps"]}
            for mode, way in {"layerwise": "racecar", "linear": "racecar linear"}.items():
                ratios = [of(steps, f"{way} {slice_}") for slice_ in columns.values()]
                rows.append([CPU_NETS[model["model"]], mode, _plain(steps), *ratios])
    return markdown(["", "mode", "plain, ms", *columns], rows)


def linear_gpu(results: Path) -> str:
    """Time and memory of a step with mode "linear" over the plain one's, on the H200."""
    columns, rows = {**SLICES, **EVERY_4TH}, []
    for name, steps in read(results, "linear-h200-*").items():
        ratios = [of(steps, f"racecar linear {slice_}") for slice_ in columns.values()]
        memory = [of(steps, f"racecar linear {slice_}", "memory_ratio") for slice_ in ("1", "1/8")]
        rows.append([NETS[name], _plain(steps), *ratios, *memory])
    return markdown(["", "plain, ms", *columns, "memory, exact", "memory, 1/8"], rows)


def parts(results: Path) -> str:
    """Where a slice's cost comes from, where a profile was taken: the ratio that is left if only products count, by
    their number (the floor) and by the time they take, and how many other kernels there are beside them."""
    rows = []
    for name, steps in read(results, "h200-*").items():
        plain = steps["plain"]
        for slice_ in ("1/8", "1/16"):
            step = steps.get(f"racecar {slice_}", {})
            if "kernels" in plain and "kernels" in step:
                products = step["product_ms"] - plain["product_ms"]
                others = step["kernel_ms"] - plain["kernel_ms"] - products
                timed = f"{1 + products / plain['median_ms']:.2f}"
                ratio, floor = (of(steps, f"racecar {slice_}", what) for what in ("ratio", "floor"))
                kernels = str(step["kernels"] - plain["kernels"])
                rows.append([NETS[name], slice_, ratio, floor, timed, kernels, f"{others:.1f}"])
    head = ["", "slice", "ratio", "floor", "its products as timed", "kernels more", "not products, ms more"]
    return markdown(head, rows)


def laboratory(results: Path) -> str:
    """The laboratory beside plain trainings, seconds and ratios, by machine."""
    rows = []
    measured = list(records.read(results / "bench", "first-two-*").values())
    ways = list(measured[0]["ratio"])
    for record in measured:
        seconds = [f"{median(record['seconds'][way]):.0f}" for way in (*ways, "ours")]
        ratios = [f"{record['ratio'][way]:.2f}" for way in ways]
        machine = f"{record['cores']} cores, {record['device'].removeprefix('CPU ')}, torch {record['torch']}"
        rows.append([machine, *seconds, *ratios])
    head = ["", *(f"{way}, s" for way in ways), "the laboratory, s", *(f"× faster than {way}" for way in ways)]
    return markdown(head, rows)


def _plain(steps: Steps) -> str:
    return f"{steps['plain']['median_ms']:.1f}"

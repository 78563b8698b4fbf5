"""The tables of docs/bench.md: what a step costs on the H200, and of what, from the records of `racecar bench`; and how
fast the laboratory is, from those of `benchmarks.first_two`.

    python -m benchmarks.cost [--results results/bench] [--page docs/bench.md]

Between its marks the page holds what this finds: nothing there is typed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import records
from benchmarks.pages import write_page
from racecar.reverse.terms import GRADIENTS

NETS = {"vgg19": "VGG19-BN", "resnet50": "ResNet50", "vit": "ViT-B/16", "resnet110": "ResNet110"}
CPU_NETS = {"vgg7-narrow": "narrow VGG", "mlp": "MLP, 6 × 1024"}
STEPS = {
    "exact": "racecar 1",
    "1/8": "racecar 1/8",
    "1/16": "racecar 1/16",
    "1/8, every 4th": "racecar 1/8 every 4",
    "1/16, every 4th": "racecar 1/16 every 4",
    "SRIP": "srip",
    "SRIP as published": "srip as published",
}
SLICES = ("1/8", "1/16")
MARK = re.compile(r"(<!-- (cost|default|gradients|linear|linear-gpu|parts|first) -->\n).*?(<!-- end -->)", re.DOTALL)
EVERY = {"exact": "1", "1/8": "1/8", "1/16": "1/16"} | {
    f"{one}, every 4th": f"{one} every 4" for one in ("1/8", "1/16")
}
"""Slices of mode "linear" on the H200, as records name them."""

Steps = Mapping[str, Mapping[str, Any]]
"""By name, what was measured of a step."""


def read(folder: Path, pattern: str = "h200-*") -> dict[str, Steps]:
    """Net → its compiled steps, of all records of the H200; what several have is taken from the last one, by name."""
    found: dict[str, dict[str, Any]] = {name: {} for name in NETS}
    for record in records.read(folder, pattern).values():
        if record["settings"]["compile"] and not record["settings"].get("combine"):
            for model in record["models"]:
                steps = [step for step in model.get("steps", []) if step.get("ratio") is not None]
                for step in steps:
                    known = found[model["model"]].setdefault(step["step"], {})
                    known |= {name: value for name, value in step.items() if value is not None}
    return {name: steps for name, steps in found.items() if steps}


def table(found: Mapping[str, Steps], whole: bool = True) -> str:
    """Ratios to the plain step, of memory too; and ours over the step by hand, the worst of exact, 1/8 and 1/16. Unless
    whole, columns without a number are left out."""
    head = ["", "plain, ms", *STEPS, "memory at 1/8, 1/16", "÷ by hand, at most"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, steps in found.items():
        times = [_of(steps, step, "ratio") for step in STEPS.values()]
        memory = ", ".join(_of(steps, STEPS[slice_], "memory_ratio") for slice_ in SLICES)
        by_hand = [one["over_by_hand"] for one in steps.values() if one.get("over_by_hand") is not None]
        worst = f"{max(by_hand):.2f} of {len(by_hand)}" if by_hand else "–"
        lines.append([NETS[name], f"{steps['plain']['median_ms']:.1f}", *times, memory, worst])
    told = [i for i, column in enumerate(zip(*lines[2:], strict=True)) if whole or set(column) != {"–"}]
    return _markdown([[line[i] for i in told] for line in lines])


def gradients(found: Mapping[str, Steps]) -> str:
    """What each reach of the gradient costs: time and memory of a step over the plain one's."""
    slices = {name: step for name, step in STEPS.items() if name == "exact" or name in SLICES}
    head = ["", "gradient", *slices, *(f"memory, {name}" for name in slices)]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for name, steps in found.items():
        for gradient in GRADIENTS:
            word = "racecar" if gradient == "reverse" else f"racecar {gradient}"
            labels = [step.replace("racecar", word) for step in slices.values()]
            ratios = [_of(steps, label, what) for what in ("ratio", "memory_ratio") for label in labels]
            lines.append([NETS[name], gradient, *ratios])
    return _markdown(lines)


def linear(folder: Path) -> str:
    """What mode "linear" costs on a CPU beside the default mode: time of a step over the plain one's."""
    slices = {"exact": "1", "1/8": "1/8", "exact, every 4th": "1 every 4", "1/8, every 4th": "1/8 every 4"}
    lines = [["", "mode", "plain, ms", *slices], ["---", "---", *["---:"] * (len(slices) + 1)]]
    for record in records.read(folder, "linear-cpu*").values():
        for model in record["models"]:
            steps = {step["step"]: step for step in model["steps"]}
            plain = f"{steps['plain']['median_ms']:.1f}"
            for mode, way in {"layerwise": "racecar", "linear": "racecar linear"}.items():
                ratios = [_of(steps, f"{way} {slice_}", "ratio") for slice_ in slices.values()]
                lines.append([CPU_NETS[model["model"]], mode, plain, *ratios])
    return _markdown(lines)


def linear_gpu(found: Mapping[str, Steps]) -> str:
    """What mode "linear" costs on the H200: time and memory of a step over the plain one's."""
    head = ["", "plain, ms", *EVERY, "memory, exact", "memory, 1/8"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, steps in found.items():
        times = [_of(steps, f"racecar linear {slice_}", "ratio") for slice_ in EVERY.values()]
        memory = [_of(steps, f"racecar linear {slice_}", "memory_ratio") for slice_ in ("1", "1/8")]
        lines.append([NETS[name], f"{steps['plain']['median_ms']:.1f}", *times, *memory])
    return _markdown(lines)


def parts(found: Mapping[str, Steps]) -> str:
    """Of what a slice's cost consists, where a profile was taken: the ratio that is left if only products count, by
    their number (the floor) and by the time they take, and how many other kernels there are beside them."""
    head = ["", "slice", "ratio", "floor", "its products as timed", "kernels more", "not products, ms more"]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for name, steps in found.items():
        plain = steps["plain"]
        for slice_ in SLICES:
            one = steps.get(STEPS[slice_], {})
            if "kernels" in plain and "kernels" in one:
                products = one["product_ms"] - plain["product_ms"]
                others = one["kernel_ms"] - plain["kernel_ms"] - products
                timed = f"{1 + products / plain['median_ms']:.2f}"
                kernels = str(one["kernels"] - plain["kernels"])
                ratio, floor = (_of(steps, STEPS[slice_], what) for what in ("ratio", "floor"))
                lines.append([NETS[name], slice_, ratio, floor, timed, kernels, f"{others:.1f}"])
    return _markdown(lines)


def first(folder: Path) -> str:
    """The laboratory beside plain trainings, seconds and ratios, by machine."""
    found = list(records.read(folder, "first-two-*").values())
    ways = list(found[0]["ratio"])
    head = ["", *(f"{way}, s" for way in ways), "the laboratory, s", *(f"× faster than {way}" for way in ways)]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for record in found:
        seconds = [f"{median(record['seconds'][way]):.0f}" for way in (*ways, "ours")]
        ratios = [f"{record['ratio'][way]:.2f}" for way in ways]
        machine = f"{record['cores']} cores, {record['device'].removeprefix('CPU ')}, torch {record['torch']}"
        lines.append([machine, *seconds, *ratios])
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _of(steps: Steps, step: str, what: str) -> str:
    value = steps.get(step, {}).get(what)
    return "–" if value is None else f"{value:.2f}"


def page(text: str, folder: Path) -> str:
    """The page with its tables filled in."""
    found = read(folder)
    made = {"cost": table(found), "parts": parts(found), "first": first(folder), "linear": linear(folder)}
    made["gradients"] = gradients(read(folder, "gradients-h200-*"))
    made["linear-gpu"] = linear_gpu(read(folder, "linear-h200-*"))
    made["default"] = table(read(folder, "default-h200-*"), whole=False)
    return MARK.sub(lambda mark: f"{mark[1]}\n{made[mark[2]]}\n\n{mark[3]}", text)


def main() -> None:
    write_page(__doc__, Path("docs/bench.md"), page, Path("results/bench"))


if __name__ == "__main__":
    main()

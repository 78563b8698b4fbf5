"""The table of docs/bench.md: what a step costs on the H200, from the records of `racecar bench`.

    python -m benchmarks.cost [--results results/bench] [--page docs/bench.md]

Between its marks the page holds what this prints: nothing there is typed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from racecar.files import write_text

NETS = {"vgg19": "VGG19-BN", "resnet50": "ResNet50", "vit": "ViT-B/16", "resnet110": "ResNet110"}
STEPS = {
    "exact": "racecar 1",
    "1/8": "racecar 1/8",
    "1/16": "racecar 1/16",
    "1/8, every 4th": "racecar 1/8 every 4",
    "1/16, every 4th": "racecar 1/16 every 4",
    "SRIP": "srip",
    "SRIP as published": "srip as published",
}
MARK = re.compile(r"(<!-- cost -->\n).*?(<!-- end -->)", re.DOTALL)

Steps = Mapping[str, Mapping[str, Any]]
"""By name, what was measured of a step."""


def read(folder: Path) -> dict[str, Steps]:
    """Net → its compiled steps, of all records of the H200; what several have is taken from the last one, by name."""
    found: dict[str, dict[str, Any]] = {name: {} for name in NETS}
    for path in sorted(folder.glob("h200-*.json")):
        record = json.loads(path.read_text())
        if record["settings"]["compile"]:
            for model in record["models"]:
                steps = [step for step in model.get("steps", []) if step.get("ratio") is not None]
                for step in steps:
                    known = found[model["model"]].setdefault(step["step"], {})
                    known |= {name: value for name, value in step.items() if value is not None}
    return {name: steps for name, steps in found.items() if steps}


def table(found: Mapping[str, Steps]) -> str:
    """Ratios to the plain step, of memory too; and ours over the step by hand, the worst of exact, 1/8 and 1/16."""
    head = ["", "plain, ms", *STEPS, "memory at 1/8, 1/16", "÷ by hand, at most"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, steps in found.items():
        times = [_of(steps, step, "ratio") for step in STEPS.values()]
        memory = ", ".join(_of(steps, STEPS[slice_], "memory_ratio") for slice_ in ("1/8", "1/16"))
        by_hand = [one["over_by_hand"] for one in steps.values() if one.get("over_by_hand") is not None]
        worst = f"{max(by_hand):.2f} of {len(by_hand)}" if by_hand else "–"
        lines.append([NETS[name], f"{steps['plain']['median_ms']:.1f}", *times, memory, worst])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _of(steps: Steps, step: str, what: str) -> str:
    value = steps.get(step, {}).get(what)
    return "–" if value is None else f"{value:.2f}"


def page(text: str, folder: Path) -> str:
    """The page with its table filled in."""
    return MARK.sub(lambda mark: f"{mark[1]}\n{table(read(folder))}\n\n{mark[2]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/bench"))
    parser.add_argument("--page", type=Path, default=Path("docs/bench.md"))
    given = parser.parse_args()
    write_text(given.page, page(given.page.read_text(), given.results))


if __name__ == "__main__":
    main()

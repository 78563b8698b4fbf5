"""What docs/loss.md says of the defaults: the outcome of the safety map's rule, and a user's small nets.

    python -m benchmarks.defaults [--results results] [--page docs/loss.md]

Between its marks the page holds what this prints: nothing there is typed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks import balance, records
from benchmarks.pages import write_page
from racecar.lab.experiments.safety.rule import Verdict, judge
from racecar.lab.experiments.safety.told import fresh_table, rows_of, told
from racecar.lab.report.page_table import Table
from racecar.lab.running.results import Store
from racecar.lab.running.run import Run

MARK = re.compile(r"(?P<mark><!-- (?P<what>rule|fresh|small nets|balance) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)
DEAD = 0.2
"""Accuracy below which one of ten digits' nets is dead."""


def runs(folder: Path) -> list[Run]:
    return list(Store(folder / "safety").runs())


def verdict(folder: Path) -> Verdict:
    """Of the published map."""
    return judge(rows_of(runs(folder)).rows)


def outcome(folder: Path) -> str:
    """The first words of the map's page, as a list."""
    notes, _ = told(runs(folder))
    return "\n".join(f"- {note}" for note in notes[:2])


def small_nets(found: Iterable[dict[str, Any]]) -> str:
    """A user's nets under ``Racecar(model, x)`` as it comes, beside plain training; each from its record of most
    seeds."""
    head = ["net", "learning rate", "seeds", "plain, %", "racecar, %", "difference, paired, points", "dead: plain"]
    head.append("racecar")
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    largest: dict[tuple[str, float], dict[str, Any]] = {}
    for record in sorted(found, key=lambda record: record["seeds"]):
        largest |= {(one["net"], one["lr"]): one for one in record["nets"]}
    for one in largest.values():
        pairs = list(zip(one["plain"], one["racecar"], strict=True))
        gains = [100 * (ours - plain) for plain, ours in pairs]
        dead = [sum(value < DEAD for value in one[name]) for name in ("plain", "racecar")]
        lines.append([
            one["net"], f"{one['lr']:g}", str(len(pairs)),
            *(f"{100 * mean(one[name]):.1f}" for name in ("plain", "racecar")),
            f"{mean(gains):+.1f} ± {stdev(gains):.1f}".replace("-", "−"), *map(str, dead),
        ])  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown(table: Table) -> str:
    head = "| " + " | ".join(column.title for column in table.columns) + " |"
    rule = "|" + "|".join("---:" if column.kind == "number" else "---" for column in table.columns) + "|"
    return "\n".join([head, rule, *("| " + " | ".join(cell.text for cell in row) + " |" for row in table.rows)])


def page(text: str, folder: Path) -> str:
    """The page with its marks filled in."""

    def fill(mark: re.Match[str]) -> str:
        if mark["what"] == "rule":
            made = outcome(folder)
        elif mark["what"] == "fresh":
            made = markdown(fresh_table(verdict(folder)))
        elif mark["what"] == "balance":
            made = balance.table(balance.read(folder / "bench"))
        else:
            made = small_nets(records.read(folder / "bench", "small-nets*").values())
        return f"{mark['mark']}\n{made}\n\n{mark['end']}"

    return MARK.sub(fill, text)


def main() -> None:
    write_page(__doc__, Path("docs/loss.md"), page)


if __name__ == "__main__":
    main()

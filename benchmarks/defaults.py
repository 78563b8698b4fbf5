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
from benchmarks.sentences import paragraph, sure
from racecar_lab.experiments.safety.rule import Verdict, judge
from racecar_lab.experiments.safety.told import fresh_table, rows_of, told
from racecar_lab.report.page_table import Table
from racecar_lab.running.results import Store
from racecar_lab.running.run import Run

MARK = re.compile(
    r"(?P<mark><!-- (?P<what>rule|gains|fresh|small nets|balance|why) -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)
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


def gains(folder: Path) -> str:
    """What the chosen setting is worth, on fresh seeds."""
    found = verdict(folder)
    assert found.chosen is not None
    fresh = found.fresh[found.chosen]
    batch, group, shallow = fresh.gains["batch"], fresh.gains["group"], fresh.plain_gains[3]
    sure(all((one.gain or 0) < 2 * one.error for one in found.cells.values()), "no setting gains on average")
    sure(all(gain < -2 * error for gain, error in (batch, group)), "the default costs the probe where there are norms")
    sure(shallow[0] > 2 * shallow[1], "the default gains with three convolutions and no norm")
    return paragraph(
        "1. **No setting gains on average over all these nets**, with and without norms, so the rule takes the "
        f"least: λ = {found.chosen.lam:g}. Even that costs the probe {-100 * batch[0]:.1f} points with batch norm "
        f"and {-100 * group[0]:.1f} with group norm, as the fresh seeds show. It is not nothing: nets without norms "
        f"gain at it, {100 * shallow[0]:.1f} points at the probe with three convolutions, and on the task itself (a "
        "user's nets, further below)."
    )


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
        apart = [100 * (ours - plain) for plain, ours in pairs]
        dead = [sum(value < DEAD for value in one[name]) for name in ("plain", "racecar")]
        lines.append([
            one["net"], f"{one['lr']:g}", str(len(pairs)),
            *(f"{100 * mean(one[name]):.1f}" for name in ("plain", "racecar")),
            f"{mean(apart):+.1f} ± {stdev(apart):.1f}".replace("-", "−"), *map(str, dead),
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
        elif mark["what"] == "gains":
            made = gains(folder)
        elif mark["what"] == "why":
            made = balance.remarks(balance.read(folder / "bench"))
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

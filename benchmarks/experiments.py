"""docs/experiments.md: every experiment with what its records say, in the first sentence of their pages.

python -m benchmarks.experiments [--page docs/experiments.md] [--results results]
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from benchmarks.pages import write_page
from benchmarks.sentences import paragraph
from racecar_lab.experiments import EXPERIMENTS

MARK = re.compile(r"(<!-- experiments -->\n).*?(<!-- end -->)", re.DOTALL)
WHICH = {
    "few-labels-fresh": "the map's best cell, on fresh seeds",
    "few-labels-losses": "with both losses, two depths and two starts, every variant searched alike",
    "few-labels-map": "many settings, too few seeds for a verdict",
    "few-labels": "ten seeds, every variant tuned alike",
    "information-100": "a hundred seeds, the default loss and the paper's",
    "information-var_u": "on the published table var_u.mat",
    "information": "on data made from its rule",
    "mnist-fixed": "one λ for all stages",
    "mnist-lambda": "how that λ was fixed",
    "mnist-losses": "the default loss and the paper's, ten seeds",
    "mnist": "every variant tuned alike",
}
"""Of an experiment with several records: what is its own in each."""


def findings(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Experiment → its records' folders, each with the sentence that its page opens with."""
    found = defaultdict(list)
    for page in sorted(folder.glob("*/report.md")):
        text = page.read_text()
        (name,) = set(re.findall(r'<a id="in-([\w-]+)">', text)) & set(EXPERIMENTS)
        found[name].append((page.parent.name, re.search(r"^\*\*(.+)\*\*$", text, re.MULTILINE)[1]))  # type: ignore[index]
    return found


def table(folder: Path) -> str:
    """A heading for each experiment, and below it a line for each of its records."""
    found, parts = findings(folder), []
    for name, one in EXPERIMENTS.items():
        parts += [f"### {one.title}", f"`racecar run {name}`, {one.section or 'ours'}."]
        lines = [
            paragraph(f"- [{record}](../results/{record}/report.md){_which(record, found[name])}. {sentence}")
            for record, sentence in found[name]
        ]
        parts.append("\n".join(lines) or "No published record yet.")
    return "\n\n".join(parts)


def _which(record: str, beside: list[tuple[str, str]]) -> str:
    return f", {WHICH[record]}" if len(beside) > 1 else ""


def page(text: str, folder: Path) -> str:
    """The page with its list filled in."""
    return MARK.sub(lambda mark: f"{mark[1]}\n{table(folder)}\n\n{mark[2]}", text)


def main() -> None:
    write_page(__doc__, Path("docs/experiments.md"), page)


if __name__ == "__main__":
    main()

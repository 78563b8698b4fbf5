"""Make the tables of docs/ and README.md again, from the records of results/ and from the code: ``make tables``.

A table stands between two marks, ``<!-- NAME words -->`` and ``<!-- end -->``. Its function in ``TABLES`` is called
with the folder of results and the words, and returns what is written between the marks. No number in a table is typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.tables import cost, few_labels, how_it_works, keep_learning, loss, rules, slices, small_nets, verdicts
from racecar.support.files import write_text

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"^(<!-- (?!end)(\S+)((?: \S+)*) -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE)
TABLES: dict[str, Callable[..., str]] = {
    # README.md, docs/experiments.md, docs/when.md
    "paper": verdicts.paper,
    "experiments": verdicts.experiments,
    "outcomes": verdicts.outcomes,
    "texture-together": verdicts.texture_together,
    "thirteen-convolutions": verdicts.thirteen_convolutions,
    # docs/experiments/
    "losses": few_labels.by_loss,
    "first-search": few_labels.first_search,
    "map": few_labels.map_of_settings,
    "fresh-seeds": few_labels.fresh,
    "mnist": small_nets.mnist,
    "swapped": small_nets.swapped,
    "costs": small_nets.costs,
    # docs/bench.md
    "slices": slices.slices,
    "which-slice": slices.which,
    "default-cost": partial(cost.cost, pattern="default-h200-*"),
    "first-cost": partial(cost.cost, pattern="h200-*"),
    "gradients": cost.gradients,
    "linear": cost.linear,
    "linear-gpu": cost.linear_gpu,
    "parts": cost.parts,
    "laboratory": cost.laboratory,
    # docs/loss.md
    "fresh-settings": loss.fresh_settings,
    "small-nets": loss.small_nets,
    "balance": loss.balance,
    # docs/keep-learning.md
    "accuracies": keep_learning.accuracies,
    "digits-claims": keep_learning.digits_claims,
    "chosen": keep_learning.chosen,
    "streams-claims": keep_learning.streams_claims,
    "one-lambda": keep_learning.one_lambda,
    "streams-methods": keep_learning.streams_methods,
    # docs/rules.md, docs/how-it-works.md
    "rules": rules.table,
    "block": how_it_works.block,
}


def filled(text: str, results: Path = ROOT / "results") -> str:
    """The text of a page with its tables made again."""
    return MARK.sub(lambda mark: f"{mark[1]}\n{TABLES[mark[2]](results, *mark[3].split())}\n\n{mark[4]}", text)


def pages() -> list[Path]:
    """The pages that have tables between marks."""
    return [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))) if MARK.search(page.read_text())]


if __name__ == "__main__":
    for page in pages():
        write_text(page, filled(page.read_text()))

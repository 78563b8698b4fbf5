"""What docs/keep-learning.md and README.md say of the records of ``benchmarks.keep_learning_digits``.

python -m benchmarks.keep_learning_page
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import Any

from benchmarks import records
from benchmarks.keep_learning_digits import CHOOSING, JUDGED, NETS, by_strength, first, judge, late
from benchmarks.sentences import signed, sure
from racecar.support.files import write_text

FOLDER, PAGES = "keep-learning-digits", (Path("docs/keep-learning.md"), Path("README.md"))
PARTS = re.compile(r"(<!-- (judged|chosen|keeps) -->\n).*?(<!-- end -->)", re.DOTALL)
NAMES = {
    "plain": "plain",
    "keep_learning": "**keep_learning**, as it comes",
    "linear": 'mode "linear", head left out',
    "orthogonality": "soft orthogonality",
}
ARTICLE = {"MLP": "an MLP", "convolutions": "a net of three convolutions"}
RIVALS = {"plain": "plain", "orthogonality": "soft orthogonality"}

Records = Sequence[Mapping[str, Any]]


def read(results: Path) -> list[dict[str, Any]]:
    """In the order of nets and methods."""
    found = records.read(results / FOLDER).values()
    return sorted(found, key=lambda one: (list(NETS).index(one["net"]), list(NAMES).index(one["method"])))


def of(known: Records, seeds: Sequence[int]) -> list[Mapping[str, Any]]:
    return [one for one in known if one["seeds"] == list(seeds)]


def judged(known: Records) -> str:
    """Accuracies on the judged seeds, and what came of the claims."""
    lines = [
        "| net | method | strength | first task, % | second half, % | last task, % |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for one in of(known, JUDGED):
        (runs,) = one["learned"]
        strength = f"{one['strengths'][0]:g}" if one["method"] == "orthogonality" else ""
        numbers = (mean(map(measured, runs)) for measured in (first, late, lambda run: 100 * run[-1]))
        cells = [one["net"], NAMES[one["method"]], strength, *(f"{number:.1f}" for number in numbers)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| net | keep_learning over | points, second half | interval | needed | the claim |"]
    lines.append("|---|---|---:|---|---|---|")
    needed = {"plain": "at least 15", "orthogonality": "not behind: above −2"}
    for claim in judge(of(known, JUDGED)):
        interval = f"{signed(claim.interval[0])} to {signed(claim.interval[1])}"
        cells = [claim.net, RIVALS[claim.rival], signed(claim.gain.mean), interval, needed[claim.rival], claim.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def chosen(known: Records) -> str:
    """All that was tried on the seeds for choosing."""
    lines = ["| net | method | strength | first task, % | second half, % |", "|---|---|---:|---:|---:|"]
    for one in of(known, CHOOSING):
        starts, ends = by_strength(one, first), by_strength(one, late)
        for value in one["strengths"]:
            strength = "" if one["method"] == "plain" else f"{value:g}"
            cells = [one["net"], NAMES[one["method"]], strength, f"{starts[value]:.1f}", f"{ends[value]:.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def keeps(known: Records) -> str:
    """What README says, of every net; refused where the preset is not ahead for certain."""
    told = []
    claims = {(one.net, one.rival): one for one in judge(of(known, JUDGED))}
    for net in NETS:
        if (net, "plain") not in claims:
            continue
        gain, (low, high) = claims[net, "plain"].gain.mean, claims[net, "plain"].interval
        sure(low > 0, f"the preset keeps {net} learning")
        sure(
            (net, "orthogonality") not in claims or claims[net, "orthogonality"].verdict == "holds", "it is not behind"
        )
        means = {one["method"]: mean(map(late, one["learned"][0])) for one in of(known, JUDGED) if one["net"] == net}
        rival = f"; soft orthogonality: {means['orthogonality']:.0f} %" if "orthogonality" in means else ""
        told.append(
            f"{ARTICLE[net]} has {means['keep_learning']:.0f} % instead of {means['plain']:.0f} % "
            f"({signed(gain)} points, {signed(low)} to {signed(high)}{rival})"
        )
    return fill(
        "On scikit-learn's digits with new random labels sixteen times, in the second half of the tasks, "
        f"{', and '.join(told)}; five seeds, accuracy while learning; λ was chosen on others.",
        125,
    )


def made(text: str, results: Path) -> str:
    """A page with its parts written again."""
    known = read(results)
    parts = {"judged": judged, "chosen": chosen, "keeps": keeps}
    return PARTS.sub(lambda mark: f"{mark[1]}\n{parts[mark[2]](known)}\n\n{mark[3]}", text)


if __name__ == "__main__":
    for page in PAGES:
        write_text(page, made(page.read_text(), Path("results")))

"""docs/experiments.md: every experiment with what its records say, in the first sentence of their pages; and README's
table of the paper's experiments.

python -m benchmarks.experiments
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from benchmarks.pages import write_page
from benchmarks.sentences import paragraph
from racecar.support.files import write_text
from racecar_lab.experiments import EXPERIMENTS

MARK = re.compile(r"(<!-- experiments -->\n).*?(<!-- end -->)", re.DOTALL)
README_MARK = re.compile(r"(<!-- paper -->\n).*?(<!-- end -->)", re.DOTALL)
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


PAPER = (
    ("digits", "Do a layer's singular vectors show the data? Two digits", "yes: LPIPS 0.28, plain 0.41"),
    ("peaks", "The same for peaks under scribbles", "yes: LPIPS 0.22, plain 0.50"),
    ("information-100", "Are swapped labels learned better?", "yes, with least spread"),
    ("", "InfoGAN: do single inputs get a meaning?", "yes"),
    ("mnist-losses", "Is MNIST learned better after fine-tuning?", "0.9859, plain 0.9842"),
    ("", "CIFAR-10, then CIFAR-100", "0.8711, plain 0.8377"),
    ("", "CIFAR-10, tested on CIFAR-10.1", "slope 1.55, plain 0.90"),
    ("", "ResNet110 on CIFAR-10", "+0.67 points, orthogonality +0.39"),
    ("texture-shape", "Are shapes seen instead of textures?", "54.7 %, plain 44.2 %"),
    ("smoke", "Can a GAN be run backwards?", "yes, plain gives black"),
    ("smoke-autoencoder", "Are its halves worth something in an autoencoder?", "L2 −68.9 %, real smoke −13.3 %"),
    ("", "VGG19: is style transferred better?", "yes, to look at"),
)
"""The paper's experiments, in its order: our record, empty where there is none yet, what is asked, and what it has."""
SENTENCE = re.compile(r".+: (?P<verdict>[^:(]+) \((?P<gain>[^)]+)\); .*")


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


def paper_table(folder: Path) -> str:
    """The paper's experiments, each with the first claim of our record."""
    said = {record: sentence for some in findings(folder).values() for record, sentence in some}
    lines = ["| question | the paper | ours, RR against plain | verdict |", "|---|---|---|---|"]
    for record, question, theirs in PAPER:
        cells = ["–", "not run yet"]
        if record:
            told = SENTENCE.fullmatch(said[record])
            assert told is not None
            cells = [told["gain"].replace("cosine_", "cosine "), f"[{told['verdict']}](results/{record}/report.md)"]
        lines.append(f"| {' | '.join([question, theirs, *cells])} |")
    return "\n".join(lines)


def readme(text: str, folder: Path) -> str:
    """README with its table filled in."""
    return README_MARK.sub(lambda mark: f"{mark[1]}\n{paper_table(folder)}\n\n{mark[2]}", text)


def main() -> None:
    write_page(__doc__, Path("docs/experiments.md"), page)
    write_text(Path("README.md"), readme(Path("README.md").read_text(), Path("results")))


if __name__ == "__main__":
    main()

"""Pages whose tables are made from records: make tables changes nothing, and numbers in sentences stand in a table."""

import re
from pathlib import Path

import pytest
import torch

from benchmarks.tables.__main__ import MARK, ROOT, TABLES, filled, pages
from racecar_lab.experiments import EXPERIMENTS
from tests.pages import emptied

MEASURED = re.compile(
    r"\d[\d.,]*\s(?:points?|times|nets|settings?|%|ms|µs|GiB|MiB|kernels)|[+−±]\s?\d[\d.]*|\b\d+\.\d+"
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
ALLOWED = {
    "README.md": {"3.11": "Python", "2.0": "a licence", "3.0": "a licence"},
    "docs/bench.md": {"3 %": "a margin", "− 1": "a formula"},
    "docs/comparison.md": {"2.0": "a licence", "3.0": "a licence"},
    "docs/how-it-works.md": {"0.5": "a weight"},
    "docs/keep-learning.md": {
        "0.03": "in code", "20 nets": "a design", "95 %": "a level", "3 points": "a margin", "2 points": "a margin",
        "20 settings": "a design", "1.8 points": "between two cells",
        "45.4 %": "of a search", "98.5": "of a search", "98.3": "of a search",
    },
    "docs/laboratory.md": {
        "95 %": "a level", "3 %": "a margin", "0.01": "a margin", "0.02": "a margin",
        "44.2 %": "the paper's", "47.0 %": "the paper's", "54.7 %": "the paper's", "68 %": "a setting",
        "+ 1": "a formula", "5 %": "a margin", "10 %": "a margin", "0.5": "an AUROC that sees nothing",
        "12,285 nets": "a design", "10,000 times": "a scale", "+ 10": "a rule", "−1": "a rule",
        **{f"{n} settings": "a design" for n in (12, 16, 18, 20, 24, 80)},
    },
    "docs/contributing/rooms.md": {"+1": "a formula"},
    "docs/rules.md": {"−1": "a formula", "+1": "a formula"},
    "docs/when.md": {"95 %": "a level", "24 settings": "a design", "4 settings": "a design", "68.9 %": "the paper's",
                     "44.2": "the paper's", "54.7 %": "the paper's"},
    "docs/experiments/few-labels.md": {"95 %": "a level", "126 nets": "a design", "18 nets": "a design"},
    "docs/experiments/information.md": {"24 settings": "a design"},
    "docs/experiments/mnist.md": {"0.2 points": "the paper's", "0.2": "the paper's"},
}  # fmt: skip
"""Page → numbers in sentences that stand in no table of it, with what they are: designs, margins, the paper's."""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_make_tables_changes_nothing(page):
    """If it fails: make tables."""
    if page.name == "rules.md" and not torch.__version__.startswith("2.13"):
        pytest.skip("another torch has other functions")
    text = page.read_text()
    assert filled(emptied(text)) == text


def test_every_table_is_shown():
    assert {mark[2] for page in pages() for mark in MARK.finditer(page.read_text())} == set(TABLES)


@pytest.mark.parametrize("page", [ROOT / "README.md", *ROOT.glob("docs/**/*.md")], ids=lambda page: page.name)
def test_numbers_in_sentences_stand_in_a_table(page):
    """A number with a unit of results, a sign or decimals stands in a table of the page, there with as many decimals or
    more, or is named above."""
    text = page.read_text()
    in_tables = [float(number) for mark in MARK.finditer(text) for number in NUMBER.findall(mark[0])]
    allowed = ALLOWED.get(page.relative_to(ROOT).as_posix(), {})
    measured = [" ".join(number.split()) for number in MEASURED.findall(prose(text))]
    assert [text for text in measured if text not in allowed and not stands_in(text, in_tables)] == []


def stands_in(measured, numbers):
    (digits, *_) = NUMBER.findall(measured.replace(",", ""))
    decimals = len(digits.partition(".")[2])
    return any(abs(number - float(digits)) <= 0.5000001 * 10**-decimals for number in numbers)


def prose(text):
    """The sentences of a page: no tables from records, no code, no addresses, neither λ nor learning rates."""
    text = re.sub(r"(?ms)^```.*?^```", "", MARK.sub("", text))
    text = re.sub(r"`[^`\n]+`|\]\([^)]*\)", "", text)
    return re.sub(r"(?:λ|learning rate|weight)(?: =|, then|,)?(?:(?: from| to| and|,)? \d[\d.]*)+", "", text)


def test_every_experiment_and_every_record_is_listed():
    """In order, each sentence as the second line of text of its page."""
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert re.findall(r"(?m)^`racecar run ([\w-]+)`, ", page) == list(EXPERIMENTS)
    plain = " ".join(page.split())
    reports = sorted(ROOT.glob("results/*/report.md"))
    assert sorted(re.findall(r"\.\./results/([\w-]+)/report\.md", page)) == [report.parent.name for report in reports]
    for report in reports:
        assert report.read_text().split("\n\n")[1].strip("*") in plain


def test_when_it_helps_is_short():
    assert len(Path(ROOT / "docs" / "when.md").read_text().split()) <= 2500

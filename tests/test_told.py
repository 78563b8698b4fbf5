"""What README.md and docs/when.md say of the results is what the records say."""

import re
from pathlib import Path
from statistics import mean, stdev

import pytest

from benchmarks import told, when
from racecar.lab.running.results import Store
from tests.pages import emptied

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
T4 = 2.776
"""Student's t for five pairs."""


@pytest.fixture(scope="module")
def lines():
    return told.lines(RESULTS)


@pytest.mark.parametrize("name", told.PAGES, ids=str)
def test_the_pages_are_up_to_date(lines, name):
    """Else: python -m benchmarks.told, and python -m benchmarks.when"""
    text = (ROOT / name).read_text()
    assert "<!-- told -->" in text
    filled = told.page(emptied(text), lines, *told.PAGES[name])
    assert (when.page(filled, RESULTS) if name.name == "when.md" else filled) == text


def test_no_number_of_a_result_is_typed():
    """Outside of what is filled in, README has neither points nor likeness nor per cent; 95 % is the intervals'."""
    text = (ROOT / "README.md").read_text()
    text = re.sub(r"(?s)```.*?```|<!-- told -->.*?<!-- end -->|\]\([^)]*\)", "", text)
    assert re.findall(r"(?:SSIM )?\d[\d.,]* (?:points|nets|times|%)", text) == ["95 %"]


def test_prose_leaves_numbers_to_tables_and_lines():
    """docs/when.md: a number with a unit of results stands in what is filled in, but for what the paper has."""
    text = (ROOT / "docs" / "when.md").read_text()
    text = re.sub(r"(?s)<!-- (?!end).*?<!-- end -->|!?\[[^\]]*\]\([^)]*\)|the paper has .*?\.\s", "", text)
    assert re.findall(r"\d[\d.,]* (?:points|times|%)|[+−]\d\.\d|±\s\d", text) == ["95 %"]


def records(name):
    return [run.record for run in Store(RESULTS / name).runs()]


def test_likeness_by_hand(lines):

    def by_hand(variant, metric, stage, norm):
        return mean(
            one["metrics"][metric]
            for one in records("mnist-fixed")
            if (one["variant"], one["stage"], one["config"]["norm"]) == (variant, stage, norm)
        )

    (line,) = [one for one in lines if "look into it" in one]
    wanted = [("ssim", "A", False), ("ssim_scaled", "A", False), ("ssim_scaled", "AA", False), ("ssim", "A", True)]
    found = re.findall(r"(0\.\d\d) against (0\.\d\d)", line)
    assert found == [tuple(f"{by_hand(name, *one):.2f}" for name in ("RR", "Std")) for one in wanted]


def test_what_it_costs_in_accuracy_by_hand(lines):
    (line,) = [one for one in lines if "thirteen" in one and "It hurts" in one]
    for optimiser in ("adam", "sgd"):
        accuracy = {
            (one["variant"], one["seed"]): 100 * one["metrics"]["test_accuracy"]
            for one in records("slices-cifar")
            if (one["config"]["optimiser"], one["config"]["fraction"], one["config"]["every"]) == (optimiser, 1, 1)
        }
        lost = [accuracy["Std", seed] - accuracy["RR", seed] for seed in range(5)]
        half = T4 * stdev(lost) / 5**0.5
        assert f"{mean(lost):.1f} points with {optimiser} ({mean(lost) - half:.1f} to {mean(lost) + half:.1f})" in line


def test_a_sentence_that_the_records_do_not_bear_out_is_refused(monkeypatch):
    """As if RR and Std had changed places."""
    monkeypatch.setattr(told, "gains", lambda one, other, higher: when.gains(other, one, higher))
    with pytest.raises(ValueError, match="write another sentence"):
        told.cifar(RESULTS)

"""Pages whose tables are made from records: make tables changes nothing."""

import re

import pytest
import torch

from benchmarks.tables.__main__ import MARK, ROOT, TABLES, filled, pages
from racecar_lab.experiments import EXPERIMENTS
from tests.pages import emptied


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_make_tables_changes_nothing(page):
    """If it fails: make tables."""
    if page.name == "rules.md" and not torch.__version__.startswith("2.13"):
        pytest.skip("another torch has other functions")
    text = page.read_text()
    assert filled(emptied(text)) == text


def test_every_table_is_shown():
    assert {mark[2] for page in pages() for mark in MARK.finditer(page.read_text())} == set(TABLES)


def test_every_experiment_and_every_record_is_listed():
    """In order, each sentence as the second line of text of its page."""
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert re.findall(r"(?m)^`racecar run ([\w-]+)`, ", page) == list(EXPERIMENTS)
    plain = " ".join(page.split())
    reports = sorted(ROOT.glob("results/*/report.md"))
    assert sorted(re.findall(r"\.\./results/([\w-]+)/report\.md", page)) == [report.parent.name for report in reports]
    for report in reports:
        assert report.read_text().split("\n\n")[1].strip("*") in plain
